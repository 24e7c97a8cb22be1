// The list of the models that every Lockstep program knows.
#pragma once

#include "trainer/models/model.h"

namespace lockstep {

// "mlp", "convnet", "lstm", "resnet", "vit", "gpt2" and "torchscript", as trainer/config/schema/model.proto describes them.
Models BuiltInModels();

}  // namespace lockstep
