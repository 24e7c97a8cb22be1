// Extensions: what a program brings by name, besides what a config can say.
#pragma once

#include "trainer/models/model.h"
#include "trainer/formats/datasets.h"

namespace lockstep {

struct Extensions {
  Models models;
  Datasets datasets;
};

}  // namespace lockstep
