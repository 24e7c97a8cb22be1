#include "config/formats/division.h"

#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace lockstep {
namespace {

FoldsBy FoldsByOf(config::Folds::By by) {
  switch (by) {
    case config::Folds::STRATIFIED:
      return FoldsBy::kStratified;
    case config::Folds::PLAIN:
      return FoldsBy::kPlain;
    case config::Folds::GROUP:
      return FoldsBy::kGroup;
    case config::Folds::TIME:
      return FoldsBy::kTime;
  }
  throw BugError("data.folds.by {}", static_cast<int>(by));
}

}  // namespace

std::optional<Split> Divide(const config::Config& config, int64_t samples,
                            const DivisionKeys& keys) {
  const config::Data& data = config.data();
  if (data.folds().count() == 0) {
    if (data.validation_fraction() == 0) return std::nullopt;
    return SplitBySeed(samples, data.validation_fraction(), config.seed());
  }
  FoldOptions options{.count = data.folds().count(),
                      .fold = data.folds().fold(),
                      .by = FoldsByOf(data.folds().by()),
                      .seed = config.seed()};
  if (options.by == FoldsBy::kStratified && !keys.classes) options.by = FoldsBy::kPlain;
  std::vector<int64_t> numbers;
  if (options.by == FoldsBy::kStratified) numbers = keys.classes();
  if (options.by == FoldsBy::kGroup) numbers = keys.groups();
  return SplitByFold(samples, options, numbers);
}

std::vector<int64_t> NumbersOfTexts(const std::vector<std::string>& texts) {
  std::unordered_map<std::string_view, int64_t> known;
  std::vector<int64_t> numbers;
  numbers.reserve(texts.size());
  for (const std::string& text : texts) {
    numbers.push_back(known.try_emplace(text, static_cast<int64_t>(known.size())).first->second);
  }
  return numbers;
}

}  // namespace lockstep
