#include "ops/product/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>

#include "base/files/cache_folder.h"
#include "base/memory_scope.h"
#include "ops/common/launch_arguments.h"
#include "ops/plan/plan_candidates.h"
#include "ops/plan/plan_search.h"

namespace lockstep::ops {
namespace {

using Algorithm = std::array<uint64_t, 8>;

constexpr int kProposals = 16;

// The alignment, in bytes, that algorithms may assume for each matrix. Multiply() uses plans only for matrices with
// this alignment, so a plan fits all matrices of its key.
constexpr uint32_t kAlignment_bytes = 16;

cudaDataType_t CudaType(FloatType type) {
  switch (type) {
    case FloatType::kFloat16:
      return CUDA_R_16F;
    case FloatType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

bool LiesByRows(const at::Tensor& x) { return x.stride(1) == 1 && x.stride(0) >= x.size(1); }
bool LiesByColumns(const at::Tensor& x) { return x.stride(0) == 1 && x.stride(1) >= x.size(0); }

// Returns whether the matrix is row-major or column-major, its sizes are multiples of 8 and not 0, and its address and
// its stride are multiples of kAlignment_bytes.
bool IsPlannable(const at::Tensor& x) {
  if (x.size(0) == 0 || x.size(1) == 0 || x.size(0) % 8 != 0 || x.size(1) % 8 != 0) return false;
  if (!LiesByRows(x) && !LiesByColumns(x)) return false;
  const int64_t stride = std::max(x.stride(0), x.stride(1));
  return IsAligned(x) && stride * static_cast<int64_t>(x.element_size()) % kAlignment_bytes == 0;
}

// Returns the key of the product's plan, or nullopt if ATen has to compute the product.
std::optional<ProductKey> KeyOf(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                                const ProductOptions& options) {
  if (!to.is_cuda() || !Is16Bit(a)) return std::nullopt;
  if (!IsPlannable(to) || !IsPlannable(a) || !IsPlannable(b) || !LiesByRows(to))
    return std::nullopt;
  if (options.bias.defined() && (!Is16Bit(to) || !IsAligned(options.bias))) return std::nullopt;
  return ProductKey{.m = to.size(0),
                    .n = to.size(1),
                    .k = a.size(1),
                    .a_by_columns = !LiesByRows(a),
                    .a_stride = std::max(a.stride(0), a.stride(1)),
                    .b_by_columns = !LiesByRows(b),
                    .b_stride = std::max(b.stride(0), b.stride(1)),
                    .to_stride = to.stride(0),
                    .input = TypeOf(a),
                    .output = TypeOf(to),
                    .adds = options.adds,
                    .has_bias = options.bias.defined()};
}

void CheckArguments(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                    const ProductOptions& options) {
  TORCH_CHECK(to.dim() == 2 && a.dim() == 2 && b.dim() == 2 && to.size(0) == a.size(0) &&
                  to.size(1) == b.size(1) && a.size(1) == b.size(0),
              "a matrix product of ", a.sizes(), " by ", b.sizes(), " to ", to.sizes());
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type() &&
          (to.scalar_type() == a.scalar_type() || (Is16Bit(a) && to.scalar_type() == at::kFloat)),
      "a matrix product of ", a.scalar_type(), " by ", b.scalar_type(), " to ", to.scalar_type());
  TORCH_CHECK(a.device() == to.device() && b.device() == to.device(), "a matrix product of ",
              a.device(), " by ", b.device(), " to ", to.device());
  if (!options.bias.defined()) return;
  const at::Tensor& bias = options.bias;
  TORCH_CHECK(!options.adds, "a matrix product that adds has no bias");
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == to.size(1) && bias.is_contiguous() &&
                  bias.scalar_type() == to.scalar_type() && bias.device() == to.device(),
              "a bias of ", bias.sizes(), ", ", bias.scalar_type(), ", of a matrix product to ",
              to.sizes(), ", ", to.scalar_type());
}

// Computes a product that has no plan, with ATen.
void MultiplyByAten(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                    const ProductOptions& options) {
  const c10::NoGradGuard no_gradients;
  at::Tensor sum = to;
  if (to.scalar_type() == a.scalar_type()) {
    if (options.bias.defined()) {
      at::addmm_out(sum, options.bias, a, b);
    } else if (options.adds) {
      at::addmm_out(sum, sum, a, b);
    } else {
      at::mm_out(sum, a, b);
    }
    return;
  }
  // ATen multiplies 16-bit values to a float32 result only on GPUs, and only without a bias.
  if (!to.is_cuda()) {
    const at::Tensor product = at::mm(a.to(at::kFloat), b.to(at::kFloat));
    options.adds ? sum.add_(product) : sum.copy_(product);
  } else if (options.adds) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else {
    at::mm_out(sum, a, b, at::kFloat);
  }
  if (options.bias.defined()) sum.add_(options.bias);
}

void Check(cublasStatus_t status, const ProductKey& key, const char* doing) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "the matrix product ", Description(key), ": ", doing,
              ": cuBLASLt says ", cublasLtGetStatusString(status));
}

// The addresses of the matrices and of the bias.
struct Pointers {
  const void* a;
  const void* b;
  const void* bias;  // null if there is no bias
  void* to;
};

// The description of a product for cuBLASLt. cuBLASLt writes column-major matrices, and the row-major matrix `to` has
// the memory layout of a column-major to^T. cuBLASLt therefore computes to^T = b^T a^T.
class Descriptors {
 public:
  Descriptors(cublasLtHandle_t handle, const ProductKey& key)
      : handle_(handle), key_(key), beta_(key.adds ? 1 : 0) {
    Lay(&b_, key.input, key.k, key.n, key.b_by_columns, key.b_stride);
    Lay(&a_, key.input, key.m, key.k, key.a_by_columns, key.a_stride);
    Lay(&to_, key.output, key.m, key.n, /*by_columns=*/false, key.to_stride);
  }

  // Returns at most `count` plans that cuBLASLt's heuristic proposes, in the heuristic's order, the best plan first.
  // Throws c10::Error if cuBLASLt proposes no plan.
  std::vector<ProductPlan> Proposals(int count) {
    cublasLtMatmulDescOpaque_t operation = AnyOperation();
    cublasLtMatmulPreferenceOpaque_t preference;
    Check(cublasLtMatmulPreferenceInit(&preference), key_, "preferring");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      Check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
            key_, "preferring");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostWorkspace_bytes});
    // This mask allows algorithms without partial sums, and algorithms that add up partial sums in the compute type,
    // float32. The mask excludes reduction in place, whose order is not documented, and reduction in 16 bits.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, kAlignment_bytes);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(count);
    int found = 0;
    Check(cublasLtMatmulAlgoGetHeuristic(handle_, &operation, &b_, &a_, &to_, &to_, &preference,
                                         count, results.data(), &found),
          key_, "asking for algorithms");
    std::vector<ProductPlan> plans;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) plans.push_back(PlanOf(results[i]));
    }
    TORCH_CHECK(!plans.empty(), "the matrix product ", Description(key_),
                ": cuBLASLt has no algorithm");
    return plans;
  }

  // Returns the plan with this algorithm, or nullopt if cuBLASLt refuses the algorithm for this product or the
  // algorithm needs more than kMostWorkspace_bytes.
  std::optional<ProductPlan> Checked(const Algorithm& algorithm) {
    cublasLtMatmulDescOpaque_t operation = AnyOperation();
    cublasLtMatmulHeuristicResult_t result{};
    result.algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    if (cublasLtMatmulAlgoCheck(handle_, &operation, &b_, &a_, &to_, &to_, &result.algo, &result) !=
            CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > kMostWorkspace_bytes) {
      return std::nullopt;
    }
    return PlanOf(result);
  }

  cublasStatus_t Run(const Pointers& pointers, const ProductPlan& plan, void* workspace,
                     cudaStream_t stream) {
    cublasLtMatmulDescOpaque_t operation = Operation(pointers.bias);
    const float alpha = 1;
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
    return cublasLtMatmul(handle_, &operation, &alpha, pointers.b, &b_, pointers.a, &a_, &beta_,
                          pointers.to, &to_, pointers.to, &to_, &algorithm, workspace,
                          plan.workspace_bytes, stream);
  }

 private:
  static ProductPlan PlanOf(const cublasLtMatmulHeuristicResult_t& result) {
    return {.algorithm = std::bit_cast<Algorithm>(result.algo),
            .workspace_bytes = static_cast<int64_t>(result.workspaceSize)};
  }

  cublasLtMatmulDescOpaque_t Operation(const void* bias) const {
    cublasLtMatmulDescOpaque_t operation;
    Check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), key_,
          "describing it");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      Check(cublasLtMatmulDescSetAttribute(
                &operation, attribute, reinterpret_cast<const std::byte*>(&value), sizeof(value)),
            key_, "describing it");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, key_.b_by_columns ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key_.a_by_columns ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (key_.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    return operation;
  }

  // Returns a description of the operation for choosing algorithms. cuBLASLt considers the alignment of the bias, so
  // this description has the lowest alignment that a plan must support.
  cublasLtMatmulDescOpaque_t AnyOperation() const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): only its alignment counts, which must not be higher
    return Operation(reinterpret_cast<const void*>(uintptr_t{kAlignment_bytes}));
  }

  void Lay(cublasLtMatrixLayoutOpaque_t* layout, FloatType type, int64_t rows, int64_t columns,
           bool by_columns, int64_t stride) {
    if (!by_columns) std::swap(rows, columns);
    Check(cublasLtMatrixLayoutInit(layout, CudaType(type), rows, columns, stride), key_,
          "describing a matrix");
  }

  cublasLtHandle_t handle_;
  const ProductKey& key_;
  float beta_;
  cublasLtMatrixLayoutOpaque_t a_, b_, to_;
};

// Changes one setting of an algorithm at random. Returns false if the algorithm does not have the chosen setting. The
// caller must let cuBLASLt check whether the settings are valid together.
bool Mutate(std::minstd_rand& random, Algorithm& words) {
  auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(words);
  const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
  };
  // Sets `attribute` to a random one of the values that the algorithm supports according to its capability `of`.
  const auto set_one_of = [&](cublasLtMatmulAlgoCapAttributes_t of,
                              cublasLtMatmulAlgoConfigAttributes_t attribute) {
    std::array<uint32_t, CUBLASLT_MATMUL_TILE_END> values;
    size_t bytes = 0;
    if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, of, values.data(), sizeof(values), &bytes) !=
        CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    const size_t count = bytes / sizeof(uint32_t);
    return count > 0 && set(attribute, values[random() % count]);
  };
  bool has_it = false;
  switch (random() % 5) {
    case 0:
      has_it = set_one_of(CUBLASLT_ALGO_CAP_TILE_IDS, CUBLASLT_ALGO_CONFIG_TILE_ID);
      break;
    case 1:
      has_it = set_one_of(CUBLASLT_ALGO_CAP_STAGES_IDS, CUBLASLT_ALGO_CONFIG_STAGES_ID);
      break;
    case 2: {
      // The number of cluster shapes with up to eight blocks. Every GPU with clusters supports these shapes.
      constexpr int kShapes = CUBLASLT_CLUSTER_SHAPE_2x4x1 - CUBLASLT_CLUSTER_SHAPE_1x1x1 + 1;
      has_it = set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                   static_cast<uint16_t>(CUBLASLT_CLUSTER_SHAPE_1x1x1 + random() % kShapes));
      break;
    }
    case 3:
      has_it = set(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, static_cast<uint32_t>(random() % 2));
      break;
    default: {
      const auto parts = static_cast<int32_t>(1 + random() % 6);
      const uint32_t scheme =
          parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
      has_it = set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts) &&
               set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme);
    }
  }
  words = std::bit_cast<Algorithm>(algorithm);
  return has_it;
}

// The candidate algorithms for one product. The candidates write to `target`, which has the sizes, strides and type of
// `to` and may be overwritten.
class ProductCandidates : public PlanCandidates<ProductPlan> {
 public:
  ProductCandidates(Descriptors& descriptors, const Pointers& pointers, const at::Tensor& target,
                    bool adds, const ProductPlan& first)
      : PlanCandidates(first),
        descriptors_(descriptors),
        pointers_{pointers.a, pointers.b, pointers.bias, target.mutable_data_ptr()},
        target_(target),
        adds_(adds) {
    if (adds_) target_.zero_();
  }

  bool Run(size_t candidate) override {
    return descriptors_.Run(pointers_, (*this)[candidate], workspace(), StreamOf(target_)) ==
           CUBLAS_STATUS_SUCCESS;
  }

  bool AddNeighbour(size_t candidate, std::minstd_rand& random) override {
    Algorithm algorithm = (*this)[candidate].algorithm;
    if (!Mutate(random, algorithm)) return false;
    const std::optional<ProductPlan> plan = descriptors_.Checked(algorithm);
    return plan && Add(*plan);
  }

  // Returns the rows 0, step, 2 step, ... of the product: all rows if there are fewer than 64, otherwise 64 to 127
  // rows.
  at::Tensor Sample(size_t candidate) override {
    if (adds_) target_.zero_();
    if (!Run(candidate)) return {};
    const int64_t step = std::max<int64_t>(1, target_.size(0) / 64);
    return target_.slice(/*dim=*/0, std::nullopt, std::nullopt, step)
        .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }

 private:
  Descriptors& descriptors_;
  Pointers pointers_;
  at::Tensor target_;
  bool adds_;
};

class PlannedProduct : public PlannedOperation<ProductPlan> {
 public:
  PlannedProduct(Descriptors& descriptors, const Pointers& pointers, const at::Tensor& to,
                 bool adds)
      : descriptors_(descriptors), pointers_(pointers), to_(to), adds_(adds) {}

  // Returns cuBLASLt's first proposal. This function asks for only one proposal, because the first proposal may depend
  // on how many proposals are asked for.
  std::optional<ProductPlan> First() override { return descriptors_.Proposals(1)[0]; }

  ProductPlan Search(const ProductPlan& first) override {
    const c10::NoGradGuard no_gradients;
    const at::Tensor target =
        adds_ ? at::empty_strided(to_.sizes(), to_.strides(), to_.options()) : to_;
    ProductCandidates candidates(descriptors_, pointers_, target, adds_, first);
    return candidates.Fastest(descriptors_.Proposals(kProposals));
  }

  std::string Text(const ProductPlan& plan) const override { return TextOf(plan); }

  std::optional<ProductPlan> Parsed(const std::string& text) override {
    std::optional<ProductPlan> plan = ParseProductPlan(text);
    if (!plan) return std::nullopt;
    const std::optional<ProductPlan> checked = descriptors_.Checked(plan->algorithm);
    if (!checked) return std::nullopt;
    plan->workspace_bytes = checked->workspace_bytes;
    return plan;
  }

 private:
  Descriptors& descriptors_;
  const Pointers& pointers_;
  const at::Tensor& to_;
  bool adds_;
};

ProductPlanner& ProcessPlanner() {
  static ProductPlanner planner(CacheFolder());
  return planner;
}

}  // namespace

ProductPlanner::ProductPlanner(std::string folder)
    : choices_(std::move(folder), "products", [](c10::DeviceIndex device) {
        return DeviceText(device, fmt::format("cuBLASLt {}", cublasLtGetVersion()));
      }) {}

void ProductPlanner::Multiply(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                              const ProductOptions& options) {
  CheckArguments(to, a, b, options);
  if (!options.bias.defined() && !LiesByRows(to) && LiesByColumns(to)) {
    return Multiply(to.t(), b.t(), a.t(), options);
  }
  if (to.is_meta()) return;
  c10::cuda::OptionalCUDAGuard on_device;
  if (to.is_cuda()) {
    on_device.set_device(to.device());
    // This call makes a CUDA context current. A thread of autograd may have no CUDA context before the thread's first
    // product, and ATen would then print a warning.
    c10::cuda::set_device(to.device().index(), /*force=*/true);
  }
  const std::optional<ProductKey> key = KeyOf(to, a, b, options);
  if (!key) return MultiplyByAten(to, a, b, options);

  // The event makes the product visible to profilers and to code that counts floating-point operations, like ATen's
  // products.
  RECORD_FUNCTION(kMatrixProductEvent, std::vector<c10::IValue>({a, b}));
  const cudaStream_t stream = StreamOf(to);
  const void* bias = options.bias.defined() ? options.bias.const_data_ptr() : nullptr;
  Descriptors descriptors(at::cuda::getCurrentCUDABlasLtHandle(), *key);
  const Pointers pointers = {a.const_data_ptr(), b.const_data_ptr(), bias, to.mutable_data_ptr()};
  PlannedProduct product(descriptors, pointers, to, key->adds);
  const ProductPlan& plan = *choices_.Choose(to.device().index(), *key, product, options.searches);
  c10::DataPtr workspace;
  if (plan.workspace_bytes > 0) {
    const MemoryScope scope(MemoryOwner::kWorkspaces);
    workspace = c10::cuda::CUDACachingAllocator::get()->allocate(plan.workspace_bytes);
  }
  Check(descriptors.Run(pointers, plan, workspace.get(), stream), *key, "multiplying");
}

void MatrixProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                   const ProductOptions& options) {
  ProcessPlanner().Multiply(to, a, b, options);
}

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  const at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  MatrixProduct(product, a, b);
  return product;
}

std::vector<ProductPlanReport> ProductPlans() { return ProcessPlanner().Plans(); }

}  // namespace lockstep::ops
