// GradientMemory: records whether the memory of a .grad already holds a gradient of this step. If it does not, the
// step's first gradient overwrites the memory. The memory need then not be set to zero, and the first gradient need not
// be added to it.
//
// The owner of the memory attaches a GradientMemory to each .grad and begins each step with Begin(). Then there are
// two cases:
//   - An operation that makes a gradient itself calls TakeOver() before it writes. If TakeOver() returns true, the
//     operation overwrites the memory with the gradient. Otherwise the operation adds the gradient to the memory.
//   - Code that can only add, like autograd, first calls ZeroIfUnset().
// The first call of TakeOver() or ZeroIfUnset() for a gradient in a step calls the owner's `make_ready`. Before the
// call of make_ready nobody may touch the memory: it may not be allocated yet, or it may lie at another address than in
// the step before. make_ready sets to zero the memory of each gradient for which IsToBeZero() is true. make_ready may
// do so for several adjacent gradients at once. IsToBeZero() is false for a gradient if TakeOver() was the first call
// for it in the last step. Before the step's sums are read, the owner calls ZeroIfUnset() for each gradient, so that
// the memory is zero for each parameter that got no gradient in this step.
//
// The sums are the same as if all memory were set to zero and all gradients were added. Only the order of summation may
// differ, inside a matrix product that adds its result to the memory.
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

  // Returns whether make_ready must set this gradient to zero.
  bool IsToBeZero() const { return !is_taken_over_; }

  bool TakeOver() {
    if (!BeFirst()) return false;
    is_taken_over_ = true;
    return true;
  }

  void ZeroIfUnset(const at::Tensor& gradient) {
    if (BeFirst() && std::exchange(is_taken_over_, false)) gradient.zero_();
  }

  // Returns the GradientMemory that is attached to the .grad `gradient`, or null if there is none.
  static GradientMemory* Of(const at::Tensor& gradient) {
    return dynamic_cast<GradientMemory*>(gradient.unsafeGetTensorImpl()->get_backend_meta());
  }

 private:
  // If no gradient has come since Begin(), calls make_ready and returns true. Otherwise returns false. If make_ready
  // throws, the next call of BeFirst() calls make_ready once more.
  bool BeFirst() {
    if (!is_unset_) return false;
    make_ready_();
    is_unset_ = false;
    return true;
  }

  std::function<void()> make_ready_;
  bool is_unset_ = false;       // whether no gradient has come since Begin()
  bool is_taken_over_ = false;  // whether the first gradient of the last step overwrote the memory
};

}  // namespace lockstep
