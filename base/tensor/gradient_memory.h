// What a gradient's memory holds while a step adds up its gradients, so that the first of them can be
// written over it: neither is the memory set to zero before, nor read by that one.
//
// Whoever owns the memory attaches one to each .grad and begins each step with Begin(). Then either
//   - an operation that makes a gradient itself asks TakeOver() before it writes: true means that the gradient
//     goes over what the memory holds, false that it is to be added; or
//   - whoever can only add, as autograd does, calls ZeroIfUnset() first.
// The first of these in a step calls the owner's `make_ready`. There may be no memory before it, and elsewhere
// than in the step before: only from then on may it be touched. make_ready sets to zero what IsToBeZero(), at
// best with its neighbours; what TakeOver() was asked for first in the last step is left as it is. Before the
// step's sums are read, ZeroIfUnset() sees to those that no gradient came for.
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
  explicit GradientMemory(std::function<void()> make_ready) : make_ready_(std::move(make_ready)) {}

  void AttachTo(const at::Tensor& gradient) {
    gradient.unsafeGetTensorImpl()->set_backend_meta(
        c10::intrusive_ptr<GradientMemory>::reclaim_copy(this));
  }

  void Begin() { is_unset_ = true; }

  // For make_ready.
  bool IsToBeZero() const { return !is_taken_over_; }

  bool TakeOver() {
    if (!BeFirst()) return false;
    is_taken_over_ = true;
    return true;
  }

  void ZeroIfUnset(const at::Tensor& gradient) {
    if (BeFirst() && std::exchange(is_taken_over_, false)) gradient.zero_();
  }

  // That of a .grad, or null.
  static GradientMemory* Of(const at::Tensor& gradient) {
    return dynamic_cast<GradientMemory*>(gradient.unsafeGetTensorImpl()->get_backend_meta());
  }

 private:
  // Whether nobody has been since Begin(); then all is made ready. An exception leaves it to be the next.
  bool BeFirst() {
    if (!is_unset_) return false;
    make_ready_();
    is_unset_ = false;
    return true;
  }

  std::function<void()> make_ready_;
  bool is_unset_ = false;       // since Begin(), no gradient has come
  bool is_taken_over_ = false;  // the last that came first was written over what was there
};

}  // namespace lockstep
