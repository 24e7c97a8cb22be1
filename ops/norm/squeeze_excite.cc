#include "ops/norm/squeeze_excite.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/custom_class.h>

#include <limits>
#include <utility>
#include <vector>

#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"
#include "ops/norm/squeeze_excite_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
constexpr int64_t kPack = 8;

// The tensors that Excite()'s backward stores for Squeeze()'s backward.
struct Left {
  at::Tensor dy, gate;
};

// The object that the Squeeze() and the Excite() of a pair share. It holds tensors only between the backward of
// Excite() and the backward of Squeeze(). These tensors must have no autograd graph, because the graph would refer to
// Squeeze() and Excite() and form a reference cycle.
class Pair : public torch::CustomClassHolder {
 public:
  // Returns true for the first caller only, which is the Excite() of the pair.
  bool Take() { return !std::exchange(is_taken_, true); }

  void Leave(Left left) {
    left_ = std::move(left);
    backward_ = torch::autograd::get_current_graph_task_id();
  }

  // Removes and returns the stored tensors. Returns undefined tensors if Leave() was not called in this run of
  // backward.
  Left TakeLeft() {
    Left left = std::exchange(left_, {});
    return backward_ == torch::autograd::get_current_graph_task_id() ? left : Left();
  }

 private:
  bool is_taken_ = false;
  Left left_;
  int backward_ = -1;
};

using PairPointer = c10::intrusive_ptr<Pair>;

void KeepPair(AutogradContext* context, const PairPointer& pair) {
  context->saved_data["pair"] = c10::IValue::make_capsule(pair);
}

// Returns the pair that KeepPair() saved; null if there is none.
PairPointer PairOf(const AutogradContext& context) {
  const auto found = context.saved_data.find("pair");
  if (found == context.saved_data.end()) return {};
  return c10::static_intrusive_pointer_cast<Pair>(found->second.toCapsule());
}

SqueezeShape ShapeOf(at::IntArrayRef sizes, at::Device device) {
  return {.count = sizes[0],
          .pixels = sizes[2] * sizes[3],
          .channels = sizes[1],
          .multiprocessors = TraitsOf(device).multiprocessors};
}

at::Tensor InPixels(const at::Tensor& gradient) {
  return gradient.defined() ? Aligned(gradient.contiguous(kLast)) : gradient;
}

// Returns a tensor with one value per channel in the layout that the kernels read: contiguous and aligned.
at::Tensor InChannels(const at::Tensor& tensor) {
  return tensor.defined() ? Aligned(tensor.contiguous()) : tensor;
}

const void* DataOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Returns factor * the sums over the pixels of x * by, [count, channels, 1, 1]. An undefined `by` counts as 1.
at::Tensor SumsOf(const at::Tensor& x, const at::Tensor& by, double factor) {
  const SqueezeShape shape = ShapeOf(x.sizes(), x.device());
  const at::Tensor sums = at::empty({shape.count, shape.channels, 1, 1}, x.options(), kLast);
  const int64_t slices = PixelSumSlices(shape);
  at::Tensor partials;
  if (slices > 1) {
    partials = at::empty({slices, shape.count, shape.channels}, x.options().dtype(at::kFloat));
  }
  Launch(x, [&](cudaStream_t stream) {
    LaunchPixelSums({.x = x.const_data_ptr(),
                     .by = DataOf(by),
                     .sums = sums.mutable_data_ptr(),
                     .factor = static_cast<float>(factor),
                     .partials = slices > 1 ? partials.mutable_data_ptr<float>() : nullptr},
                    TypeOf(x), shape, stream);
  });
  return sums;
}

// Returns x * gate + factor * shift, of sizes `sizes`. An undefined x or shift counts as 0, and an undefined gate as 1.
at::Tensor Gated(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& shift,
                 double factor, at::IntArrayRef sizes) {
  const at::Tensor& like = x.defined() ? x : shift;
  const at::Tensor y = at::empty(sizes, like.options(), kLast);
  Launch(y, [&](cudaStream_t stream) {
    LaunchGatedPixels({.x = DataOf(x),
                       .gate = DataOf(gate),
                       .shift = DataOf(shift),
                       .factor = static_cast<float>(factor),
                       .y = y.mutable_data_ptr()},
                      TypeOf(y), ShapeOf(sizes, y.device()), stream);
  });
  return y;
}

class FusedSqueeze : public torch::autograd::Function<FusedSqueeze> {
 public:
  static constexpr int64_t kSameX = 1;  // the index of the result same_x

  // Returns {mean, x}, the members of Squeezed.
  static variable_list forward(AutogradContext* context, const Variable& x) {
    context->set_materialize_grads(false);
    context->saved_data["sizes"] = x.sizes().vec();
    KeepPair(context, c10::make_intrusive<Pair>());
    const double pixels = static_cast<double>(x.size(2) * x.size(3));
    return {SumsOf(x, {}, 1 / pixels), x.detach()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const double pixels = static_cast<double>(sizes[2] * sizes[3]);
    const auto [dy, gate] = PairOf(*context)->TakeLeft();
    if (IsDifferentiatedAgain()) return {Plain(gradients, pixels, sizes)};
    const at::Tensor d_mean = InChannels(gradients[0]);
    const at::Tensor d_x = InPixels(gradients[kSameX]);
    if (dy.defined()) {
      const at::Tensor dx = Gated(dy, gate, d_mean, 1 / pixels, sizes);
      return {d_x.defined() ? dx + d_x : dx};
    }
    if (!d_mean.defined()) return {d_x};
    return {Gated(d_x, {}, d_mean, 1 / pixels, sizes)};
  }

 private:
  // Computes the gradient of x with operations that can be differentiated again. In this case Excite()'s backward has
  // stored nothing in the pair.
  static at::Tensor Plain(const variable_list& gradients, double pixels, at::IntArrayRef sizes) {
    if (!gradients[0].defined()) return gradients[kSameX];
    const at::Tensor of_mean = (gradients[0] / pixels).expand(sizes);
    return gradients[kSameX].defined() ? gradients[kSameX] + of_mean : of_mean;
  }
};

class FusedExcite : public torch::autograd::Function<FusedExcite> {
 public:
  // Returns x * gate. `pair` is null if x is not the same_x of a Squeeze() that still needs an Excite().
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& gate,
                          const PairPointer& pair) {
    context->set_materialize_grads(false);
    context->save_for_backward({x, gate});
    if (pair) KeepPair(context, pair);
    return Gated(x, gate, {}, 0, x.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list results(3);
    if (!gradients[0].defined()) return results;
    const variable_list saved = context->get_saved_variables();
    const Variable& x = saved[0];
    const Variable& gate = saved[1];
    const bool wants_x = context->needs_input_grad(0);
    const bool wants_gate = context->needs_input_grad(1);
    if (IsDifferentiatedAgain()) {
      if (wants_x) results[0] = gradients[0] * gate;
      if (wants_gate) results[1] = at::sum(gradients[0] * x, {2, 3}, /*keepdim=*/true);
      return results;
    }
    const at::Tensor dy = InPixels(gradients[0]);
    if (wants_gate) results[1] = SumsOf(dy, x, 1);
    if (!wants_x) return results;
    if (const PairPointer pair = PairOf(*context)) {
      pair->Leave({.dy = dy, .gate = gate.detach()});
    } else {
      results[0] = Gated(dy, gate, {}, 0, dy.sizes());
    }
    return results;
  }
};

// Returns the pair of the Squeeze() that returned x as same_x. Returns null if there is no such Squeeze(), or if
// another Excite() is already the other half of this pair.
PairPointer TakePairOf(const at::Tensor& x) {
  if (!x.requires_grad() || x.output_nr() != FusedSqueeze::kSameX) return {};
  const auto* squeeze =
      dynamic_cast<const torch::autograd::CppNode<FusedSqueeze>*>(x.grad_fn().get());
  PairPointer pair = squeeze != nullptr ? PairOf(squeeze->ctx_) : PairPointer();
  return pair && pair->Take() ? pair : PairPointer();
}

}  // namespace

bool HasSqueezeKernels(const at::Tensor& x) {
  return IsOnGpu(x) && Is16Bit(x) && x.dim() == 4 && x.numel() > 0 && x.is_contiguous(kLast) &&
         x.size(1) % kPack == 0 && x.numel() / kPack <= std::numeric_limits<int>::max();
}

Squeezed Squeeze(const at::Tensor& x) {
  if (!HasSqueezeKernels(x)) return SqueezeTwin(x);
  const variable_list results = FusedSqueeze::apply(Aligned(x));
  return {.mean = results[0], .same_x = results[FusedSqueeze::kSameX]};
}

at::Tensor Excite(const at::Tensor& x, const at::Tensor& gate) {
  const bool fits = HasSqueezeKernels(x) && gate.scalar_type() == x.scalar_type() &&
                    gate.device() == x.device() &&
                    gate.sizes() == at::IntArrayRef({x.size(0), x.size(1), 1, 1});
  if (!fits) return ExciteTwin(x, gate);
  const at::Tensor own = Aligned(x);
  return FusedExcite::apply(own, InChannels(gate), TakePairOf(own));
}

Squeezed SqueezeTwin(const at::Tensor& x) {
  return {.mean = at::mean(x, {2, 3}, /*keepdim=*/true), .same_x = x};
}

at::Tensor ExciteTwin(const at::Tensor& x, const at::Tensor& gate) { return x * gate; }

}  // namespace lockstep::ops
