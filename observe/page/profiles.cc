#include "observe/page/profiles.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/open_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kNewest = 5;
constexpr size_t kMostKernels = 40;  // the maximum number of kernels in the table of one rank
constexpr size_t kMostBytes = size_t{64} << 20;

std::optional<int64_t> StepOf(const std::string& name) {
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

Json ReadSummary(const std::string& path, int64_t step) {
  std::string why;
  const std::string text = ReadPlainFile(path, kInCheckpoint, kMostBytes, why);
  if (!why.empty()) return {{"step", step}, {"why_not", why}};
  Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return {{"step", step}, {"why_not", "it is no JSON object"}};
  summary["step"] = step;
  const auto ranks = summary.find("ranks");
  if (ranks == summary.end() || !ranks->is_array()) return summary;
  for (Json& rank : *ranks) {
    if (!rank.is_object()) continue;
    const auto kernels = rank.find("kernels");
    if (kernels == rank.end() || !kernels->is_array() || kernels->size() <= kMostKernels) continue;
    const size_t more = kernels->size() - kMostKernels;
    kernels->erase(kernels->begin() + kMostKernels, kernels->end());
    rank["more_kernels"] = more;  // this makes the iterator `kernels` invalid
  }
  return summary;
}

}  // namespace

bool Profiles::Refresh() {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const std::optional<int64_t> step = StepOf(entry->path().filename())) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps);
  const size_t count = std::exchange(count_, steps.size());
  if (steps.size() > kNewest + 1) steps.erase(steps.begin() + 1, steps.end() - kNewest);
  bool has_changed = count != count_;
  std::map<int64_t, Summary> summaries;
  for (const int64_t step : steps) {
    const std::string path = PathOf(step);
    Summary now{.changed = fs::last_write_time(path, error), .bytes = fs::file_size(path, error)};
    // The summary of a profile is written last, so a profile that is still being written may have no summary.
    if (error == std::errc::no_such_file_or_directory) continue;
    const auto known = summaries_.find(step);
    if (known != summaries_.end() && known->second == now) {
      now.json = std::move(known->second.json);
    } else {
      now.json = ReadSummary(path, step);
      has_changed = true;
    }
    summaries.emplace(step, std::move(now));
  }
  has_changed |= summaries.size() != summaries_.size();
  summaries_ = std::move(summaries);
  return has_changed;
}

Json Profiles::Json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [step, summary] : summaries_) list.push_back(summary.json);
  return list;
}

std::vector<std::string> Profiles::Unreadable() const {
  std::vector<std::string> lines;
  for (const auto& [step, summary] : summaries_) {
    const auto why = summary.json.find("why_not");
    if (why == summary.json.end() || !why->is_string()) continue;
    lines.push_back(PathOf(step) + ": " + why->get<std::string>());
  }
  return lines;
}

}  // namespace lockstep
