#include "models/built_in/built_in.h"

#include "models/built_in/convnet.h"
#include "models/built_in/gpt2.h"
#include "models/built_in/lstm.h"
#include "models/built_in/mlp.h"
#include "models/built_in/resnet.h"
#include "models/built_in/tabm.h"
#include "models/built_in/vit.h"
#include "models/imported/imported.h"
#include "models/imported/torchscript.h"

namespace lockstep {

Models BuiltInModels() {
  Models models;
  models.Add<Mlp>("mlp", Models::Reads::kNothing);
  models.Add<TabM>("tabm", Models::Reads::kNothing);
  models.Add<ConvNet>("convnet", Models::Reads::kNothing);
  models.Add<Lstm>("lstm", Models::Reads::kNothing);
  models.Add<ResNet>("resnet", Models::Reads::kNothing);
  models.Add<Vit>("vit", Models::Reads::kNothing);
  models.Add<Gpt2>("gpt2", Models::Reads::kNothing);
  models.Add<Imported>("imported", Models::Reads::kNothing);
  models.Add<TorchScript>("torchscript", Models::Reads::kNothing);
  return models;
}

}  // namespace lockstep
