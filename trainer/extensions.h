// Extensions: what a program brings by name, besides what a config can say.
#pragma once

#include "trainer/datasets.h"
#include "trainer/model.h"

namespace lockstep {

struct Extensions {
  Models models;
  Datasets datasets;
};

}  // namespace lockstep
