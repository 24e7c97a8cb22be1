#include "trainer/models/built_in/built_in.h"

#include "trainer/models/built_in/convnet.h"
#include "trainer/models/built_in/gpt2.h"
#include "trainer/models/built_in/lstm.h"
#include "trainer/models/built_in/mlp.h"
#include "trainer/models/built_in/resnet.h"
#include "trainer/models/built_in/vit.h"
#include "trainer/models/imported/torchscript.h"

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
