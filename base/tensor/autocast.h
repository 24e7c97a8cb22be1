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
  at::ScalarType dtype;  // what is rounded to where it is enabled
  bool caches;           // whether weights that were rounded are kept (RoundedWeights)

  // This thread's, for operations on `device`.
  static AutocastState Now(at::DeviceType device);

  void Set() const;
};

// While it lives, `state` is this thread's.
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

// While it lives, this thread's operations take their inputs as they are.
class NoAutocast {
 public:
  explicit NoAutocast(at::Device device);

  // What matrix products would have been rounded to; float32: to nothing.
  at::ScalarType dtype() const {
    return guard_.before().enabled ? guard_.before().dtype : at::kFloat;
  }

 private:
  AutocastGuard guard_;
};

// Until the outermost one ends, weights that autocast has rounded are kept: they are out of date
// once the weights change.
class RoundedWeights {
 public:
  RoundedWeights();
  ~RoundedWeights();
  RoundedWeights(const RoundedWeights&) = delete;
  RoundedWeights& operator=(const RoundedWeights&) = delete;
};

}  // namespace lockstep
