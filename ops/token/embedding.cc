#include "ops/token/embedding.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"
#include "ops/product/weight_gradient.h"
#include "ops/token/embedding_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The values that backward needs besides the indices.
struct Kept : torch::CustomClassHolder {
  struct Addend {
    at::Tensor gradient;  // the result of GradientToAddTo()
    int64_t rows;
    int64_t padding_index;
  };

  std::vector<Addend> addends;
  std::vector<int64_t> sizes;  // the shape to which all indices broadcast; count * length elements
  int64_t count = 0;
  int64_t length = 1;
  int64_t width = 0;
};

// Returns each addend's indices as [count, length].
variable_list Expanded(const Kept& kept, const variable_list& indices) {
  variable_list expanded;
  for (const at::Tensor& rows : indices) {
    expanded.push_back(rows.expand(kept.sizes).reshape({kept.count, kept.length}));
  }
  return expanded;
}

// Returns the EmbeddedSum that the kernels take as an argument. Its pointers to weights and gradients are null.
// `expanded` is the result of Expanded().
EmbeddedSum SumOf(const Kept& kept, const variable_list& expanded) {
  EmbeddedSum sum{.count = kept.count, .length = kept.length, .width = kept.width};
  for (const at::Tensor& rows : expanded) {
    const Kept::Addend& addend = kept.addends[sum.addend_count];
    sum.addends[sum.addend_count++] = {
        .indices = rows.const_data_ptr<int64_t>(),
        .count_stride = rows.stride(0),
        .length_stride = rows.stride(1),
        .weight = nullptr,
        .gradient = nullptr,
        .rows = addend.rows,
        .padding_index = addend.padding_index,
    };
  }
  return sum;
}

// Returns the gradient of an addend's weight, with the same bits in each run: index_add_() sorts the indices if
// at::globalContext() asks for deterministic algorithms. (at::embedding_dense_backward() cannot be used:
// compute-sanitizer's racecheck finds races in ATen's kernel for up to 3,072 indices, and the kernel's gradients are
// wrong while a tool slows the kernel down.)
at::Tensor RepeatableGradient(const Kept::Addend& addend, const at::Tensor& indices,
                              const at::Tensor& d_out) {
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(d_out.size(-1));
  const at::Tensor summed = at::sum_to(d_out.to(at::kFloat), sizes).reshape({-1, sizes.back()});
  // Indices outside of the rows, and the padding index, are replaced by the index of an additional row, which is
  // dropped.
  const at::Tensor none = indices.lt(0)
                              .logical_or_(indices.ge(addend.rows))
                              .logical_or_(indices.eq(addend.padding_index));
  return at::zeros({addend.rows + 1, sizes.back()}, summed.options())
      .index_add_(0, indices.masked_fill(none, addend.rows).flatten(), summed)
      .narrow(0, 0, addend.rows);
}

class FusedEmbeddingSum : public torch::autograd::Function<FusedEmbeddingSum> {
 public:
  static Variable forward(AutogradContext* context, at::TensorList weights,
                          const variable_list& indices, const c10::intrusive_ptr<Kept>& kept,
                          at::ScalarType dtype) {
    context->save_for_backward(indices);
    const variable_list expanded = Expanded(*kept, indices);
    for (size_t i = 0; i < weights.size(); ++i) {
      kept->addends[i].gradient = GradientToAddTo(weights[i]);
    }
    std::vector<int64_t> sizes = kept->sizes;
    sizes.push_back(kept->width);
    const at::Tensor out = at::empty(sizes, weights[0].options().dtype(dtype));
    Launch(out, [&](cudaStream_t stream) {
      EmbeddedSum sum = SumOf(*kept, expanded);
      for (size_t i = 0; i < weights.size(); ++i) {
        sum.addends[i].weight = weights[i].const_data_ptr<float>();
      }
      LaunchEmbeddingSum(sum, out.mutable_data_ptr(), TypeOf(dtype), stream);
    });
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const std::vector<Kept::Addend>& addends = kept->addends;
    const variable_list indices = context->get_saved_variables();
    variable_list results(2 * addends.size() + 2);
    if (IsDifferentiatedAgain()) {
      std::ranges::copy(GradientsToDifferentiate(*context, *kept, indices, gradients[0]),
                        results.begin());
      return results;
    }
    const at::Tensor d_out = gradients[0].contiguous();
    const bool is_repeatable = at::globalContext().deterministicAlgorithms() && d_out.numel() > 0;
    const variable_list expanded = Expanded(*kept, indices);
    variable_list added(addends.size());  // the gradients to which the kernel adds
    for (size_t i = 0; i < addends.size(); ++i) {
      if (!context->needs_input_grad(i)) continue;
      if (is_repeatable) {
        results[i] = RepeatableGradient(addends[i], indices[i], d_out);
        continue;
      }
      added[i] = addends[i].gradient;
      if (added[i].defined()) {
        PrepareToAdd(added[i]);
      } else {
        added[i] = results[i] =
            at::zeros({addends[i].rows, kept->width}, d_out.options().dtype(at::kFloat));
      }
    }
    if (is_repeatable) return results;
    Launch(d_out, [&](cudaStream_t stream) {
      EmbeddedSum sum = SumOf(*kept, expanded);
      for (size_t i = 0; i < addends.size(); ++i) {
        if (added[i].defined()) sum.addends[i].gradient = added[i].mutable_data_ptr<float>();
      }
      LaunchEmbeddingSumBackward(sum, d_out.const_data_ptr(), TypeOf(d_out), stream);
    });
    return results;
  }

 private:
  // Returns gradients that can be differentiated again. The values of the gradients do not depend on the weights'
  // values, so zeros replace the weights.
  static variable_list GradientsToDifferentiate(const AutogradContext& context, const Kept& kept,
                                                const variable_list& indices,
                                                const at::Tensor& d_out) {
    variable_list weights;
    for (size_t i = 0; i < kept.addends.size(); ++i) {
      weights.push_back(
          at::zeros({kept.addends[i].rows, kept.width}, d_out.options().dtype(at::kFloat))
              .requires_grad_(context.needs_input_grad(i)));
    }
    return GradientsOfTwin(weights, d_out, [&](const variable_list& own) {
      std::vector<Embedded> all;
      for (size_t i = 0; i < own.size(); ++i) {
        all.push_back({.indices = indices[i],
                       .weight = own[i],
                       .padding_index = kept.addends[i].padding_index});
      }
      return EmbeddingSumTwin(all, d_out.scalar_type());
    });
  }
};

bool HasKernels(const std::vector<Embedded>& addends, at::ScalarType dtype) {
  return addends.size() <= kMostEmbedded && IsFloatType(dtype) &&
         std::ranges::all_of(addends, [&](const Embedded& addend) {
           return IsOnGpu(addend.indices) && addend.indices.scalar_type() == at::kLong &&
                  addend.weight.scalar_type() == at::kFloat &&
                  addend.weight.device() == addend.indices.device() &&
                  addend.weight.device() == addends[0].weight.device();
         });
}

}  // namespace

at::Tensor EmbeddingSum(const std::vector<Embedded>& addends, at::ScalarType dtype) {
  TORCH_CHECK(!addends.empty(), "embedding: there is nothing to add");
  if (!HasKernels(addends, dtype)) return EmbeddingSumTwin(addends, dtype);
  const auto kept = c10::make_intrusive<Kept>();
  kept->width = addends[0].weight.size(-1);
  variable_list all_indices;
  variable_list weights;
  for (const auto& [indices, weight, padding_index] : addends) {
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == kept->width, "embedding: a weight of ",
                weight.sizes(), " beside rows of ", kept->width);
    kept->sizes = at::infer_size(kept->sizes, indices.sizes());
    kept->addends.push_back(
        {.gradient = {}, .rows = weight.size(0), .padding_index = padding_index});
    all_indices.push_back(indices);
    weights.push_back(weight.contiguous());
  }
  if (kept->sizes.size() > 1 && kept->sizes.back() > 0) kept->length = kept->sizes.back();
  kept->count = c10::multiply_integers(kept->sizes) / kept->length;
  return FusedEmbeddingSum::apply(at::TensorList(weights), all_indices, kept, dtype);
}

at::Tensor EmbeddingSumTwin(const std::vector<Embedded>& addends, at::ScalarType dtype) {
  at::Tensor sum;
  for (const auto& [indices, weight, padding_index] : addends) {
    const at::Tensor rows = at::embedding(weight, indices, padding_index);
    sum = sum.defined() ? sum + rows : rows;
  }
  return sum.to(dtype);
}

}  // namespace lockstep::ops
