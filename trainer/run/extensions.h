// Extensions: the models and data sets that a program adds by name, beyond what a config can say.
#pragma once

#include "trainer/formats/datasets.h"
#include "trainer/models/model.h"

namespace lockstep {

struct Extensions {
  Models models;
  Datasets datasets;
};

}  // namespace lockstep
