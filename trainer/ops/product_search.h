// Which algorithm multiplies which matrices: the choice, and the file that keeps it from one run to the next.
// Nothing here needs a GPU.
//
// Promise: no file ever makes a run fail: where none can be read or written, there is none. All who share a
// file use the same plan of a key, from the first product on: Keep() gives the plan of whoever came first.
//
// Protocol:
//   1. A device's file is FOLDER/products-DEVICE.txt. The device's text names the GPU's model, its
//      multiprocessors and cuBLASLt's version: an algorithm means nothing elsewhere.
//   2. A line is a key, its plan, and XXH3 of both and the device's text. A line that is not what this
//      program would write for what it says is passed over: cut short, damaged, of another device or version.
//   3. Keep() locks FOLDER/products-DEVICE.txt.lock, reads what others have written meanwhile, adds its line,
//      and replaces the file by all that is good (base/new_file.h): readers find a whole file or none.
//      It waits a second for the lock and then goes on without; so it does where there are no locks.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/ops/matrix_product_test.cc)
//   no home, a folder that cannot be written -> plans that are not kept -> ProductPlanFile.GoesWithoutAFolder
//   a file that is cut short, damaged or of another device -> its good lines -> ProductPlanFile.DropsBadLines
//   several write at once -> one plan of a key, and all keys -> ProductPlanFile.ManyWriteAtOnce
//   a plan that cuBLASLt refuses -> it is replaced -> ProductPlanFile.ReplacesWhatIsOfNoUse
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

// to [m, n] = a [m, k] b [k, n], all that an algorithm is chosen by. Strides are those between rows, or
// between columns where a matrix lies by columns, in elements; `to` lies by rows.
struct ProductKey {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool a_by_columns = false;
  int64_t a_stride = 0;
  bool b_by_columns = false;
  int64_t b_stride = 0;
  int64_t to_stride = 0;
  FloatType input = FloatType::kBFloat16;
  FloatType output = FloatType::kBFloat16;
  bool adds = false;
  bool has_bias = false;

  auto operator<=>(const ProductKey&) const = default;
};

// "16384x2304x768 a=rows/768 b=columns/768 to=2304 bf16>bf16 bias".
std::string Description(const ProductKey& key);

struct ProductPlan {
  std::array<uint64_t, 8> algorithm{};  // a cublasLtMatmulAlgo_t
  int64_t workspace_bytes = 0;
  // Measured, of this algorithm and of the first that cuBLASLt proposes; 0: not measured.
  double us = 0;
  double first_us = 0;

  bool operator==(const ProductPlan&) const = default;
};

// Of candidates' times in microseconds, the first's first: which to take. It is the one with the least median
// if that is 2 % less than the first's; else the first, so that noise does not choose. A candidate without
// times could not run. There is one that has some.
size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us);

// There is one: at least one time.
double Median(std::vector<double> times);

// A line without its end, and back; nothing: it is none of this device's.
std::string PlanLine(const std::string& device, const ProductKey& key, const ProductPlan& plan);
struct KeyedPlan {
  ProductKey key;
  ProductPlan plan;
};
std::optional<KeyedPlan> ParsePlanLine(const std::string& device, const std::string& line);

using PlansByKey = std::map<ProductKey, ProductPlan>;

class ProductPlanFile {
 public:
  // An empty folder: no file.
  ProductPlanFile(const std::string& folder, std::string device);

  const std::string& path() const { return path_; }

  // What it has now; it is read whole.
  PlansByKey Read() const;

  // Returns what it has now, with the plan to use for `key`: the one that someone has put there, if it
  // `is_usable`; else `plan`, which is there from now on, if it can be.
  PlansByKey Keep(const ProductKey& key, const ProductPlan& plan,
                  const std::function<bool(const ProductPlan&)>& is_usable) const;

 private:
  void Write(const PlansByKey& plans) const;

  std::string device_;
  std::string path_;
};

}  // namespace lockstep::ops
