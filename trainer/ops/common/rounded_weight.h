// Copies in 16 bits of float32 weights, as matrix units read them.
//
// The code that trains the weights may keep such copies. They are made when an operation first asks for them. The
// optimizer then writes them together with the weights, so that no step needs a separate kernel to round a weight. If
// nobody keeps copies, a weight is rounded each time.
//
// Invariant: a kept copy is its rounded weight, from one update to the next. Other code that writes weights (for
// example when it reads a checkpoint) must do so before the first copy is made.
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
