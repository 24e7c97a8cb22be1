#include "trainer/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {

std::string ModelSpec::Option(const std::string& key, const std::string& fallback) const {
  asked.push_back(key);
  const auto option = config.option().find(key);
  return option == config.option().end() ? fallback : option->second;
}

int64_t ModelSpec::IntegerOption(const std::string& key, int64_t fallback) const {
  const std::string text = Option(key, std::to_string(fallback));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError("model.option \"{}\": \"{}\" is no integer", key, text);
  }
  return value;
}

void ModelSpec::RequireNumbers() const {
  if (!tokens) return;
  throw UsageError("model {}: it takes numbers or pixels, and the samples are tokens: take gpt2",
                   config.name());
}

at::Tensor Model::LossSum(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten(), /*weight=*/{},
                                at::Reduction::Sum, /*ignore_index=*/-100, label_smoothing());
}

std::vector<NamedTensor> Model::State() const {
  std::vector<NamedTensor> state;
  for (const auto& item : named_parameters()) state.push_back({item.key(), item.value()});
  for (const auto& item : named_buffers()) state.push_back({item.key(), item.value()});
  return state;
}

void Models::Add(const std::string& name, Factory factory) {
  factories_[name] = std::move(factory);
}

std::shared_ptr<Model> Models::Make(const ModelSpec& spec) const {
  const std::string& name = spec.config.name();
  const auto factory = factories_.find(name);
  if (factory == factories_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : factories_) names.push_back(known);
    throw UsageError("model.name: unknown model \"{}\"{} (known: {})", name,
                     DidYouMean(name, names), fmt::join(names, ", "));
  }
  std::shared_ptr<Model> model = factory->second(spec);
  model->label_smoothing_ = spec.config.label_smoothing();
  for (const auto& [key, value] : spec.config.option()) {
    if (std::find(spec.asked.begin(), spec.asked.end(), key) != spec.asked.end()) continue;
    throw UsageError("model.option: the model \"{}\" has no option \"{}\"{}", name, key,
                     DidYouMean(key, spec.asked));
  }
  return model;
}

}  // namespace lockstep
