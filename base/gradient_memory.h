// What a gradient's memory holds while a step adds up its gradients, so that the first of them can be
// written over it: neither is the memory set to zero before, nor read by that one.
//
// Whoever owns the memory attaches one to each .grad and begins each step with Begin(). Then either
//   - an operation that makes a gradient itself asks TakeOver() before it writes: true means that the gradient
//     goes over what the memory holds, false that it is to be added; or
//   - whoever can only add, as autograd does, calls ZeroIfUnset() first.
// Only after these is there memory for certain, and its address is the same until the next Begin(): the step's
// first of them calls the owner's `open`, which may take the memory only then, and which sets to zero what
// IsToBeZero(), at best with its neighbours. What TakeOver() was asked for first is left as it is by the next
// step. Before the step's sums are read, ZeroIfUnset() sees to those that no gradient came for.
//
// The sums are those of zeroing all and adding, but for the order in which a product that adds may sum.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <functional>
#include <utility>

namespace lockstep {

class GradientMemory : public c10::BackendMeta {
 public:
  explicit GradientMemory(std::function<void()> open) : open_(std::move(open)) {}

  void AttachTo(const at::Tensor& gradient) {
    gradient.unsafeGetTensorImpl()->set_backend_meta(
        c10::intrusive_ptr<GradientMemory>::reclaim_copy(this));
  }

  void Begin() { is_unset_ = true; }

  // In `open`.
  bool IsToBeZero() const { return !is_taken_over_; }

  bool TakeOver() {
    if (!std::exchange(is_unset_, false)) return false;
    open_();
    is_taken_over_ = true;
    return true;
  }

  void ZeroIfUnset(const at::Tensor& gradient) {
    if (!std::exchange(is_unset_, false)) return;
    open_();
    if (std::exchange(is_taken_over_, false)) gradient.zero_();
  }

  // That of a .grad, or null.
  static GradientMemory* Of(const at::Tensor& gradient) {
    return dynamic_cast<GradientMemory*>(gradient.unsafeGetTensorImpl()->get_backend_meta());
  }

 private:
  std::function<void()> open_;
  bool is_unset_ = false;       // since Begin(), no gradient has come
  bool is_taken_over_ = false;  // the last that came first was written over what was there
};

}  // namespace lockstep
