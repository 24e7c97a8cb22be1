#include "trainer/run/checkpoint_state.h"

#include <ATen/ATen.h>

#include <string>

namespace lockstep {

StateTree TreeOf(int64_t& accumulation, Plateau& plateau, EarlyStopping& early_stopping, Step& step,
                 const World& world) {
  StateTree state;
  state.BeginPart("trainer", 1);
  state.Add("accumulation", accumulation);
  state.BeginPart("schedule", 1);
  plateau.AddTo(state);
  state.BeginPart("early_stopping", 1);
  early_stopping.AddTo(state);
  step.AddTo(state);
  const auto add_random = [&](const std::string& name, at::Device device) {
    const at::Generator random = at::globalContext().defaultGenerator(device);
    state.AddOwn(
        name, [random] { return random.get_state(); },
        [random](const at::Tensor& saved) { at::Generator(random).set_state(saved); });
  };
  state.BeginPart("random", 1);
  add_random("cpu", at::kCPU);
  if (world.device.is_cuda()) add_random("cuda", world.device);
  // The checkpoint's model file holds only the buffers of rank 0. With several ranks each rank therefore saves its own
  // buffers in the tree.
  state.BeginPart("buffers", 1);
  for (const auto& [name, tensor] : step.buffers()) {
    if (world.size() == 1) break;
    state.AddOwn(name, tensor.detach());
  }
  return state;
}

}  // namespace lockstep
