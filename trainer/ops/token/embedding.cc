#include "trainer/ops/token/embedding.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/ops/common/launch_arguments.h"
#include "trainer/ops/product/weight_gradient.h"
#include "trainer/ops/token/embedding_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

class FusedEmbedding : public torch::autograd::Function<FusedEmbedding> {
 public:
  static Variable forward(AutogradContext* context, const Variable& tokens,
                          const Variable& token_weight, const Variable& position_weight,
                          at::ScalarType dtype) {
    const c10::DeviceGuard guard(tokens.device());
    const EmbeddingShape shape{.count = tokens.size(0),
                               .length = tokens.size(1),
                               .width = token_weight.size(1),
                               .vocabulary = token_weight.size(0),
                               .positions = position_weight.size(0)};
    const at::Tensor out =
        at::empty({shape.count, shape.length, shape.width}, token_weight.options().dtype(dtype));
    Launch(tokens, [&](cudaStream_t stream) {
      LaunchEmbedding(tokens.const_data_ptr<int64_t>(), token_weight.const_data_ptr<float>(),
                      position_weight.const_data_ptr<float>(), out.mutable_data_ptr(),
                      TypeOf(dtype), shape, stream);
    });
    context->save_for_backward({tokens});
    context->saved_data["vocabulary"] = shape.vocabulary;
    context->saved_data["positions"] = shape.positions;
    context->saved_data["d_token"] = GradientToAddTo(token_weight);
    context->saved_data["d_position"] = GradientToAddTo(position_weight);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    const c10::DeviceGuard guard(tokens.device());
    const at::Tensor d_out = gradients[0].contiguous();
    const EmbeddingShape shape{.count = tokens.size(0),
                               .length = tokens.size(1),
                               .width = d_out.size(2),
                               .vocabulary = context->saved_data["vocabulary"].toInt(),
                               .positions = context->saved_data["positions"].toInt()};
    const bool deterministic = at::globalContext().deterministicAlgorithms() && tokens.numel() > 0;
    const GradientSums d_position = NewGradientSums(context->saved_data["d_position"].toTensor(),
                                                    shape.positions * shape.width, d_out.options());
    at::Tensor added = context->saved_data["d_token"].toTensor();
    at::Tensor d_token;
    if (added.defined() && !deterministic) PrepareToAdd(added);
    if (!added.defined() && !deterministic) {
      d_token = added =
          at::zeros({shape.vocabulary, shape.width}, d_out.options().dtype(at::kFloat));
    }
    Launch(d_out, [&](cudaStream_t stream) {
      LaunchEmbeddingBackward(
          d_out.const_data_ptr(), TypeOf(d_out.scalar_type()), tokens.const_data_ptr<int64_t>(),
          deterministic ? nullptr : added.mutable_data_ptr<float>(), d_position.to, shape, stream);
    });
    if (deterministic) {
      // ATen writes wherever a token points: those out of range go to a row past the vocabulary.
      const at::Tensor unknown = tokens.lt(0).logical_or_(tokens.ge(shape.vocabulary));
      d_token = at::embedding_dense_backward(
                    d_out.to(at::kFloat), tokens.masked_fill(unknown, shape.vocabulary),
                    shape.vocabulary + 1, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false)
                    .narrow(0, 0, shape.vocabulary);
    }
    at::Tensor position = d_position.result;
    if (position.defined()) position = position.view({shape.positions, shape.width});
    return {{}, d_token, position, {}};
  }
};

}  // namespace

at::Tensor TokenAndPositionEmbedding(const at::Tensor& tokens, const at::Tensor& token_weight,
                                     const at::Tensor& position_weight, at::ScalarType dtype) {
  if (!IsOnGpu(tokens) || !IsFloatType(dtype) || token_weight.scalar_type() != at::kFloat ||
      position_weight.scalar_type() != at::kFloat) {
    return TokenAndPositionEmbeddingTwin(tokens, token_weight, position_weight, dtype);
  }
  TORCH_CHECK(tokens.dim() == 2 && token_weight.dim() == 2 && position_weight.dim() == 2 &&
                  token_weight.size(1) == position_weight.size(1) &&
                  tokens.size(1) <= position_weight.size(0),
              "embedding: tokens of ", tokens.sizes(), ", token weight of ", token_weight.sizes(),
              " and position weight of ", position_weight.sizes(), " do not fit together");
  return FusedEmbedding::apply(tokens.contiguous(), token_weight.contiguous(),
                               position_weight.contiguous(), dtype);
}

at::Tensor TokenAndPositionEmbeddingTwin(const at::Tensor& tokens, const at::Tensor& token_weight,
                                         const at::Tensor& position_weight, at::ScalarType dtype) {
  return (at::embedding(token_weight, tokens) + position_weight.narrow(0, 0, tokens.size(1)))
      .to(dtype);
}

}  // namespace lockstep::ops
