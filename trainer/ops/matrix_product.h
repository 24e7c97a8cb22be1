// Matrix products of 16-bit values by the fastest of cuBLASLt's algorithms. The first that its heuristic
// proposes, which is what at::mm takes, can be a fifth slower than another.
//
// Promise: MatrixProduct() gives what at::mm gives, summed in float32. The time of a search is paid once for
// a GPU's model, a version of cuBLASLt, shape, layouts and types: the choice is kept in a file
// (product_search.h). Partial sums are never rounded to 16 bits, nor added in an order that depends on time.
//
// Protocol, for a product that is met for the first time:
//   1. An algorithm that the file has is taken, if cuBLASLtMatmulAlgoCheck takes it, too. The file is read once
//      for each GPU, and again with each choice that is put there.
//   2. Else the candidates are timed on the current stream, with the product's own matrices: what the heuristic
//      proposes for 32 and for 128 MiB of workspace, then neighbours of the best of those. The first and the
//      four fastest are timed again in turns. This takes 80 ms or so; of a slow product, 48 times its time.
//      A product that sets its `to` is timed on it, since it is written anyway; one that adds, on a
//      tensor like it.
//   3. One is chosen that is at least 2 % faster than the first and gives the same to within rounding; else
//      the first is. Who has searched while another process did takes what that one has put in the file.
//   4. There is no search, and cuBLASLt's first is taken, while the stream is captured or where the caller
//      wants none: the next call may search. Likewise, but for good, where its workspace finds no memory, and
//      from the 257th product of a process on.
//
// Determinism: an algorithm gives the same bits each time on GPUs of one model. Who shares a file uses the same
// algorithms from the first step on: a run that is resumed on its machine goes on with the same bits, whether
// it searched or not. Where there is no folder to write to, each process searches by itself: ranks may round
// differently then, which does no harm, since their gradients are summed; but a resumed run's bits differ.
// With at::globalContext().deterministicAlgorithms() nothing is timed or read: cuBLASLt's first is taken,
// which is a function of the product, the GPU and the version.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/ops/matrix_product_test.cc)
//   sizes or types that do not fit together -> c10::Error -> MatrixProduct.SaysWhatDoesNotFit
//   a product that it does not plan (below) -> at::mm's -> MatrixProductTest.IsTheProductOfEverySize
//   cuBLASLt refuses a product or fails -> c10::Error with the product and cuBLASLt's words -> (none)
//   no memory for the search -> the first algorithm -> (none)
//   an algorithm of the file that cuBLASLt refuses -> a new search
//     -> ProductPlanFile.ReplacesWhatIsOfNoUse shows that the line is replaced
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/ops/product_search.h"

namespace lockstep::ops {

struct ProductOptions {
  bool adds = false;  // to what `to` holds
  // Undefined, or contiguous [n] of `to`'s type, to be added to each row; not together with `adds`.
  at::Tensor bias = {};
  // False: do not search for this product, such as those of a text that grows, whose shapes come once.
  bool searches = true;
};

enum class PlanSource {
  kFirst,     // cuBLASLt's first
  kSearched,  // by this process
  kFile,      // found by another process, or an earlier one
};

// "cuBLASLt's first", "searched", "from the file".
std::string_view NameOf(PlanSource source);

struct ProductPlanReport {
  ProductKey key;
  ProductPlan plan;
  PlanSource source = PlanSource::kFirst;
};

// Any number of threads may use one at a time.
class ProductPlanner {
 public:
  // Where its files lie; empty: it keeps none.
  explicit ProductPlanner(std::string folder);

  // to = a b, with the options. a: [m, k] and b: [k, n], float16 or bfloat16, of any strides; to: [m, n], of
  // their type or float32. No gradient; it must share no memory with a and b.
  //
  // Planned are products on a GPU whose m, n and k are multiples of 8 and not 0, of matrices that lie by rows
  // or by columns, where the beginnings and the strides are multiples of 16 bytes; a bias wants a `to` that
  // lies by rows. All others are at::mm's or at::addmm's, as are those of other types, on any device.
  void Multiply(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                const ProductOptions& options = {});

  // What was planned so far.
  std::vector<ProductPlanReport> Plans() const;

 private:
  struct Entry {
    std::optional<ProductPlanReport> first;
    std::optional<ProductPlanReport> chosen;
    bool looked_up = false;  // in the file
  };
  struct KeptPlans {
    ProductPlanFile file;
    PlansByKey plans;  // as it was read last
  };
  struct Product;

  ProductPlan PlanFor(const Product& product, bool may_search);
  void Search(const Product& product, Entry& entry);
  KeptPlans& KeptFor(c10::DeviceIndex device);

  const std::string folder_;
  mutable std::mutex mutex_;  // of what follows
  std::map<std::pair<c10::DeviceIndex, ProductKey>, Entry> entries_;
  std::map<c10::DeviceIndex, KeptPlans> kept_;
  int searches_ = 0;
};

// What at::RecordFunction calls a planned product; its inputs are a and b.
inline constexpr char kMatrixProductEvent[] = "lockstep::matrix_product";

// By the process's planner, whose files lie in CacheFolder().
void MatrixProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                   const ProductOptions& options = {});

// Likewise, to a new contiguous matrix of `type`.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// Its Plans().
std::vector<ProductPlanReport> ProductPlans();

}  // namespace lockstep::ops
