// What a gradient's memory holds while a step adds up its gradients, so that the first of them can be
// written over it: neither is the memory set to zero before, nor read by that one.
//
// Whoever owns the memory attaches one to each .grad and begins each step with Begin(). Then either
//   - an operation that makes a gradient itself asks TakeOver() before it writes: true means that the gradient
//     goes over what the memory holds, false that it is to be added; or
//   - whoever can only add, as autograd does, calls ZeroIfUnset() first.
// What TakeOver() was asked for first is left as it is by the next Begin(), other memory is to be zero then:
// the owner sets to zero whatever IsToBeZero(), at best all at once. Before the step's sums are read,
// ZeroIfUnset() sees to those that no gradient came for.
//
// The sums are those of zeroing all and adding, but for the order in which a product that adds may sum.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace lockstep {

class GradientMemory : public c10::BackendMeta {
 public:
  void AttachTo(const at::Tensor& gradient) {
    gradient.unsafeGetTensorImpl()->set_backend_meta(
        c10::intrusive_ptr<GradientMemory>::reclaim_copy(this));
  }

  void Begin() { is_unset_ = true; }

  // At the beginning of a step.
  bool IsToBeZero() const { return !is_taken_over_; }

  bool TakeOver() {
    if (!std::exchange(is_unset_, false)) return false;
    is_taken_over_ = true;
    return true;
  }

  void ZeroIfUnset(const at::Tensor& gradient) {
    if (!std::exchange(is_unset_, false)) return;
    if (std::exchange(is_taken_over_, false)) gradient.zero_();
  }

  // That of a .grad, or null.
  static GradientMemory* Of(const at::Tensor& gradient) {
    return dynamic_cast<GradientMemory*>(gradient.unsafeGetTensorImpl()->get_backend_meta());
  }

 private:
  bool is_unset_ = false;       // since Begin(), no gradient has come
  bool is_taken_over_ = false;  // the last that came first was written over what was there
};

}  // namespace lockstep
