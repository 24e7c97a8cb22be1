// Keeps 16-bit copies of float32 weights. The tensor cores need the weights in 16 bits.
//
// The code that trains the weights may keep such copies. A copy is made when an operation first asks for it. From then
// on the optimizer writes the copy together with the weight, so that no step needs a separate kernel to round the
// weight. If no copies are kept, a weight is rounded each time an operation uses it.
//
// Invariant: an operation always gets the rounded form of the weight's present values, whoever wrote them. If
// LibTorch's operations write a weight in place, as in a model that clips its weights in forward, the weight's version
// changes, and the copy is made again. Code that writes weights by their address and is not the optimizer must do so
// before the first copy is made.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace lockstep::ops {

class WeightCopies {
 public:
  // While a Use exists, the operations of this thread use `copies`, and add missing copies to them. If `copies` is
  // null, the operations of this thread use no copies.
  class Use {
   public:
    explicit Use(WeightCopies* copies);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    WeightCopies* before_;
  };

  // Returns the copies that this thread uses; null if there are none.
  static WeightCopies* InUse();

  // Returns the copy of a weight, or of a tensor with the weight's address. The result is undefined if there is no
  // copy.
  at::Tensor Of(const at::Tensor& weight) const;

  // Returns all copies.
  std::vector<at::Tensor> All() const;

  // Removes the copy of a weight, because the optimizer is not going to update it.
  void Forget(const at::Tensor& weight);

  // After this call no more copies are made.
  void Settle() { settled_ = true; }
  bool is_settled() const { return settled_; }

 private:
  friend at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

  struct Copy {
    at::Tensor tensor;
    int64_t version;  // the weight's version when it was rounded
  };

  bool settled_ = false;
  std::map<const void*, Copy> copies_;  // the key is the address of the weight
};

// Returns a weight in `type`, with the same strides and without a gradient function. Call it where gradients are off,
// which means in a Function's forward.
at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

}  // namespace lockstep::ops
