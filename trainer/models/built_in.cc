#include "trainer/models/built_in.h"

#include "trainer/models/convnet.h"
#include "trainer/models/gpt2.h"
#include "trainer/models/lstm.h"
#include "trainer/models/mlp.h"
#include "trainer/models/resnet.h"
#include "trainer/models/torchscript.h"
#include "trainer/models/vit.h"

namespace lockstep {

Models BuiltInModels() {
  Models models;
  models.Add<Mlp>("mlp");
  models.Add<ConvNet>("convnet");
  models.Add<Lstm>("lstm");
  models.Add<ResNet>("resnet");
  models.Add<Vit>("vit");
  models.Add<Gpt2>("gpt2");
  models.Add<TorchScript>("torchscript");
  return models;
}

}  // namespace lockstep
