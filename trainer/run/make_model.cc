#include "trainer/run/make_model.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/tensor/named_tensor.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

// Copies the tensors of the file config.init_from into the model. If config.replace_head is set, leaves out the tensors
// of the last layer. Throws Error (kUsage, kCheckpoint).
void LoadWeights(const config::Config& config, const Model& model) {
  const std::vector<std::string> heads = model.HeadPrefixes();
  const auto of_head = [&](const std::string& name) {
    return std::any_of(heads.begin(), heads.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  std::map<std::string, at::Tensor> found = ReadSafetensors(config.init_from(), kGivenByUser);
  model.AdaptWeights(found);
  std::vector<NamedTensor> wanted = model.State();
  if (config.replace_head()) {
    if (heads.empty()) {
      throw UsageError("replace_head: the model \"{}\" has no last layer that could be replaced",
                       config.model().name());
    }
    std::erase_if(found, [&](const auto& entry) { return of_head(entry.first); });
    std::erase_if(wanted, [&](const NamedTensor& tensor) { return of_head(tensor.name); });
  }
  CopyByName(config.init_from(), found, wanted, [&](const std::string& name) {
    return of_head(name) ? "; to start that layer at random set replace_head: true" : "";
  });
}

// Throws Error (kUsage) if a tensor of the model holds NaN, because the loss would then be NaN from the first step on.
void RefuseNan(const std::string& file, const Model& model) {
  for (const NamedTensor& named : model.State()) {
    if (!named.tensor.is_floating_point() || !named.tensor.isnan().any().item<bool>()) continue;
    throw UsageError("{}: tensor {} holds NaN: no training mends that", file, named.name);
  }
}

}  // namespace

ModelSpec ModelSpecOf(const config::Config& config, const SampleSpec& spec, Communicator& ranks) {
  return {.input_shape = spec.shape,
          .tokens = spec.dtype == at::kLong,
          .classes = spec.classes,
          .task = spec.task,
          .categories = spec.categories,
          .config = config.model(),
          .loss = config.loss(),
          .sync_batch_norm = config.ddp().sync_batch_norm() ? &ranks : nullptr};
}

std::shared_ptr<Model> MakeModel(const config::Config& config, const SampleSpec& spec,
                                 const Models& models, const World& world) {
  torch::manual_seed(config.seed());
  std::shared_ptr<Model> model = models.Make(ModelSpecOf(config, spec, world.communicator));
  if (config.ddp().sync_batch_norm() && !model->SharesStatistics()) {
    throw UsageError(
        "ddp.sync_batch_norm: the model \"{}\" has no lockstep::BatchNorm "
        "(models/batch_norm.h)",
        config.model().name());
  }
  if (!config.init_from().empty()) {
    LoadWeights(config, *model);
    RefuseNan(config.init_from(), *model);
  } else {
    for (const std::string& file :
         {config.model().torchscript().file(), config.model().imported().file()}) {
      if (!file.empty()) RefuseNan(file, *model);
    }
  }
  model->MoveTo(world.device, /*rounds=*/Is16Bit(PrecisionOn(world.device, config.precision())));
  return model;
}

}  // namespace lockstep
