// Makes the model that a config names.
#pragma once

#include <memory>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "models/model.h"
#include "trainer/step/world.h"

namespace lockstep {

// Returns the ModelSpec with which the config's model is made, for samples of `spec`. It keeps a reference to `ranks`.
ModelSpec ModelSpecOf(const config::Config& config, const SampleSpec& spec, Communicator& ranks);

// Returns the model on the device. Its weights are drawn from config.seed or read from config.init_from, and are not
// yet the same on all ranks. Throws Error (kUsage, kCheckpoint).
std::shared_ptr<Model> MakeModel(const config::Config& config, const SampleSpec& spec,
                                 const Models& models, const World& world);

}  // namespace lockstep
