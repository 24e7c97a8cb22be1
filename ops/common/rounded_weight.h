// Keeps 16-bit copies of float32 weights. The tensor cores need the weights in 16 bits.
//
// The code that trains the weights may keep such copies. A copy is made when an operation first asks for it. From then
// on the optimizer writes the copy whenever it writes the weight, so that no step needs a separate kernel to round the
// weight. If no copies are kept, a weight is rounded each time an operation uses it.
//
// Invariant: an operation always gets the rounded form of the weight's present values, whichever code wrote these
// values. If LibTorch's operations write a weight in place, as in a model that clips its weights in forward, the
// weight's version changes, and the copy is made again. Code that writes a weight by its address does not change the
// version. After a copy was made, only the optimizer may write the weight by its address.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace lockstep::ops {

class WeightCopies {
 public:
  // A thread makes a Use to choose `copies` for its operations. While the Use exists, these operations take rounded
  // weights from `copies`, and add missing copies to `copies`. If `copies` is null, these operations use no copies.
  class Use {
   public:
    explicit Use(WeightCopies* copies);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    WeightCopies* before_;
  };

  // Returns the WeightCopies that the calling thread uses; null if it uses none.
  static WeightCopies* InUse();

  // Returns the copy of the weight whose address is that of `weight`, or an undefined tensor if there is no copy.
  at::Tensor Of(const at::Tensor& weight) const;

  // Returns all copies.
  std::vector<at::Tensor> All() const;

  // Removes the copy of `weight`. Forget() must be called if the optimizer will not update the copy.
  void Forget(const at::Tensor& weight);

  // Makes Rounded() keep no new copies from this call on.
  void Settle() { settled_ = true; }
  bool is_settled() const { return settled_; }

 private:
  friend at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

  struct Copy {
    at::Tensor tensor;
    int64_t version;  // the weight's version when the copy was last made from the weight
  };

  bool settled_ = false;
  std::map<const void*, Copy> copies_;  // the key is the address of the weight
};

// Returns `weight` rounded to `type`, with the same strides and without a gradient function. Gradients must be off, as
// in the forward of a torch::autograd::Function.
at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

}  // namespace lockstep::ops
