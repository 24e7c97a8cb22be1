#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {

Options::Options(std::string where, const Map& values)
    : where_(std::move(where)), values_(values) {}

std::string Options::Text(const std::string& key, const std::string& fallback) const {
  asked_->push_back(key);
  const auto option = values_.find(key);
  return option == values_.end() ? fallback : option->second;
}

int64_t Options::Integer(const std::string& key, int64_t fallback) const {
  const std::string text = Text(key, std::to_string(fallback));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError("{} \"{}\": \"{}\" is no integer", where_, key, text);
  }
  return value;
}

void Options::RequireAllAsked(const std::string& who) const {
  for (const auto& [key, value] : values_) {
    if (std::find(asked_->begin(), asked_->end(), key) != asked_->end()) continue;
    throw UsageError("{}: the {} has no option \"{}\"{}", where_, who, key,
                     DidYouMean(key, *asked_));
  }
}

}  // namespace lockstep
