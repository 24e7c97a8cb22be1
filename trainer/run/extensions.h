// Extensions: the models and data sets that a user's program adds to Lockstep's own, by name.
#pragma once

#include "config/formats/datasets.h"
#include "models/model.h"

namespace lockstep {

struct Extensions {
  Models models;
  Datasets datasets;
};

}  // namespace lockstep
