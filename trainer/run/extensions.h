// Extensions: the models and data sets by name, both Lockstep's own and those that a user's program adds.
#pragma once

#include "config/formats/datasets.h"
#include "models/model.h"

namespace lockstep {

struct Extensions {
  Models models;
  Datasets datasets;
};

}  // namespace lockstep
