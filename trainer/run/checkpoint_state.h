// CheckpointState holds the part of a run's state that a checkpoint contains.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/manifest.pb.h"
#include "ckpt/state_tree.h"
#include "trainer/run/early_stopping.h"
#include "trainer/step/schedule.h"
#include "trainer/step/step.h"
#include "trainer/step/world.h"

namespace lockstep {

// The state of a run at one step.
struct CheckpointState {
  std::vector<NamedTensor> model;
  StateTree tree;
  std::vector<NamedTensor> samples;  // hashes of the samples that were read (trainer/run/made_of.h)
  checkpoint::Manifest facts;        // the manifest's fields that depend on the step
};

// Returns a tree of everything on which the next step depends, except the model's parameters and buffers and the values
// that follow from the number of steps done. With several ranks, the tree also holds this rank's own buffers. Call
// TreeOf() only after a step has run or the run was resumed. The tree keeps references to all arguments.
StateTree TreeOf(int64_t& accumulation, Plateau& plateau, EarlyStopping& early_stopping, Step& step,
                 const World& world);

}  // namespace lockstep
