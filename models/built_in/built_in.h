// BuiltInModels(): the models that every Lockstep program has.
#pragma once

#include "models/model.h"

namespace lockstep {

// Returns the models that config/schema/model.proto describes.
Models BuiltInModels();

}  // namespace lockstep
