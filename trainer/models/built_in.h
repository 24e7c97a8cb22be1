// The models that every Lockstep program knows.
#pragma once

#include "trainer/model.h"

namespace lockstep {

// "mlp" and "convnet", as config.proto describes them.
Models BuiltInModels();

}  // namespace lockstep
