// The list of the models that every Lockstep program knows.
#pragma once

#include "trainer/models/model.h"

namespace lockstep {

// Returns the models "mlp", "convnet", "lstm", "resnet", "vit", "gpt2" and "torchscript", which
// trainer/config/schema/model.proto describes.
Models BuiltInModels();

}  // namespace lockstep
