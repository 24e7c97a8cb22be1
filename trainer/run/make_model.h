// Makes the model that a config names.
#pragma once

#include <memory>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "models/model.h"
#include "trainer/step/world.h"

namespace lockstep {

// Returns the ModelSpec with which the config's model is made, for samples as `spec` describes them. The ModelSpec
// keeps a reference to `ranks`.
ModelSpec ModelSpecOf(const config::Config& config, const SampleSpec& spec, Communicator& ranks);

// Returns the config's model on the device of `world`. Its weights are initialised with random numbers from config.seed
// or read from the file config.init_from. MakeModel() does not broadcast the weights from rank 0 to the other ranks.
// Throws Error (kUsage, kCheckpoint).
std::shared_ptr<Model> MakeModel(const config::Config& config, const SampleSpec& spec,
                                 const Models& models, const World& world);

}  // namespace lockstep
