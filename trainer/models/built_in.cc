#include "trainer/models/built_in.h"

#include "trainer/models/convnet.h"
#include "trainer/models/mlp.h"

namespace lockstep {

Models BuiltInModels() {
  Models models;
  models.Add<Mlp>("mlp");
  models.Add<ConvNet>("convnet");
  return models;
}

}  // namespace lockstep
