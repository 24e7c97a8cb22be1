// Keeps 16-bit copies of float32 weights. The tensor cores need the weights in 16 bits.
//
// The code that trains the weights may keep such copies. A copy is made when an operation first asks for it. From then
// on the optimizer writes the copy together with the weight, so that no step needs a separate kernel to round the
// weight. If no copies are kept, a weight is rounded each time an operation uses it.
//
// Invariant: between two updates a kept copy equals its weight, rounded. Code other than the optimizer that writes
// weights (for example when it reads a checkpoint) must do so before the first copy is made.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

namespace lockstep::ops {

class WeightCopies {
 public:
  // While it lives, operations that this thread calls take and make these copies; null: none.
  class Use {
   public:
    explicit Use(WeightCopies* copies);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    WeightCopies* before_;
  };

  // What this thread uses; null: none.
  static WeightCopies* InUse();

  // Of a weight or what shares its memory; undefined where nobody has asked for one.
  at::Tensor Of(const at::Tensor& weight) const;

  // A weight's is given up: nobody is going to write it.
  void Forget(const at::Tensor& weight);

  // From now on no more are made.
  void Settle() { settled_ = true; }
  bool is_settled() const { return settled_; }

 private:
  friend at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

  bool settled_ = false;
  std::map<const void*, at::Tensor> copies_;  // by the weight's memory
};

// A weight in `type`, in the same order in memory; without history. To be called where gradients are off: in
// a Function's forward.
at::Tensor Rounded(const at::Tensor& weight, at::ScalarType type);

}  // namespace lockstep::ops
