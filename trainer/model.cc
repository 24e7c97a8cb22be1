#include "trainer/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {

int64_t ModelSpec::IntegerOption(const std::string& key, int64_t fallback) const {
  const auto option = config.option().find(key);
  if (option == config.option().end()) return fallback;
  const std::string& text = option->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError("model.option \"{}\": \"{}\" is no integer", key, text);
  }
  return value;
}

at::Tensor Model::LossSum(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output, target, /*weight=*/{}, at::Reduction::Sum);
}

void Models::Add(const std::string& name, Factory factory) {
  factories_[name] = std::move(factory);
}

std::shared_ptr<Model> Models::Make(const ModelSpec& spec) const {
  const auto factory = factories_.find(spec.config.name());
  if (factory != factories_.end()) return factory->second(spec);
  std::vector<std::string> names;
  for (const auto& [name, unused] : factories_) names.push_back(name);
  throw UsageError("model.name: unknown model \"{}\"{} (known: {})", spec.config.name(),
                   DidYouMean(spec.config.name(), names), fmt::join(names, ", "));
}

}  // namespace lockstep
