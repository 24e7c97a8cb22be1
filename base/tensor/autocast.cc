#include "base/tensor/autocast.h"

#include <ATen/autocast_mode.h>

namespace lockstep {
namespace {

AutocastState Disabled(at::DeviceType device) {
  AutocastState state = AutocastState::Now(device);
  state.enabled = false;
  return state;
}

}  // namespace

AutocastState AutocastState::Now(at::DeviceType device) {
  // Tensors of a simulated GPU (device META, base/tensor/foretold_gpu.h) are rounded like those of a GPU.
  if (device == at::kMeta) device = at::kCUDA;
  return {.device = device,
          .enabled = at::autocast::is_autocast_enabled(device),
          .dtype = at::autocast::get_autocast_dtype(device),
          .caches = at::autocast::is_autocast_cache_enabled()};
}

void AutocastState::Set() const {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(caches);
}

AutocastGuard::AutocastGuard(const AutocastState& state)
    : before_(AutocastState::Now(state.device)) {
  state.Set();
}

NoAutocast::NoAutocast(at::Device device) : guard_(Disabled(device.type())) {}

RoundedWeights::RoundedWeights() { at::autocast::increment_nesting(); }

RoundedWeights::~RoundedWeights() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace lockstep
