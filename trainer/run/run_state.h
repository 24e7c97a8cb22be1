// RunState: the part of a run that a checkpoint holds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/manifest.pb.h"
#include "ckpt/state_tree.h"
#include "trainer/step/schedule.h"
#include "trainer/step/step.h"
#include "trainer/step/world.h"

namespace lockstep {

// What a run is at one step.
struct RunState {
  std::vector<NamedTensor> model;
  StateTree tree;
  checkpoint::Manifest facts;  // of that step
};

// All that the next step depends on, but for the model's parameters and buffers and what follows from the number of
// steps done. Once a step has run, or was resumed. Refers to all that it is given.
StateTree TreeOf(int64_t& accumulation, Plateau& plateau, Step& step, const World& world);

}  // namespace lockstep
