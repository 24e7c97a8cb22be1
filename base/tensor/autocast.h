// Autocast: sets how this thread rounds the inputs of matrix products and convolutions. LibTorch keeps this state for
// each thread.
//
// Promise: the state is read and set as a whole, and a guard restores everything that it changed.
// trainer/step/precision.h decides to which precision a run rounds.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace lockstep {

struct AutocastState {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;  // the type to which inputs are rounded if `enabled`
  bool caches;           // whether rounded weights are cached (RoundedWeights)

  // Returns this thread's state for operations on `device`.
  static AutocastState Now(at::DeviceType device);

  void Set() const;
};

// While an AutocastGuard exists, `state` is the state of this thread.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastState& state);
  ~AutocastGuard() { before_.Set(); }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

  const AutocastState& before() const { return before_; }

 private:
  AutocastState before_;
};

// While a NoAutocast exists, operations of this thread do not round their inputs.
class NoAutocast {
 public:
  explicit NoAutocast(at::Device device);

  // Returns the type to which matrix products would round their inputs without this object; float32 if they would not
  // round.
  at::ScalarType dtype() const {
    return guard_.before().enabled ? guard_.before().dtype : at::kFloat;
  }

 private:
  AutocastGuard guard_;
};

// Makes autocast keep its rounded copies of weights until the outermost RoundedWeights is destroyed. The weights must
// not change until then, because the rounded copies would not change with them.
class RoundedWeights {
 public:
  RoundedWeights();
  ~RoundedWeights();
  RoundedWeights(const RoundedWeights&) = delete;
  RoundedWeights& operator=(const RoundedWeights&) = delete;
};

}  // namespace lockstep
