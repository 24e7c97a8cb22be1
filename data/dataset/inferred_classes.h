// Checks for data sets whose number of classes is inferred from the labels: it is the greatest label plus one.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// The greatest number of classes that may be inferred. More classes are refused as a mistake, unless the user sets
// data.classes.
inline constexpr int64_t kMaxInferredClasses = 1'000'000;

// Returns a line for Dataset::Remarks() if the model learns classes that none of `labels` has, because the number of
// classes was inferred from the greatest label; otherwise returns no line. `cure` says how the user gets a class for
// each different label and no other class; if it is empty, numbering the labels from 0 does. Negative labels are
// ignored. The greatest label must be below kMaxInferredClasses.
template <typename Label>
std::vector<std::string> RemarksOnLabels(const std::string& file, std::span<const Label> labels,
                                         std::string cure = "") {
  constexpr size_t kMostShown = 12;
  std::vector<bool> occurs;
  for (const Label label : labels) {
    if (label < 0) continue;
    const auto index = static_cast<size_t>(label);
    if (index >= occurs.size()) occurs.resize(index + 1);
    occurs[index] = true;
  }
  std::vector<size_t> found;
  for (size_t label = 0; label < occurs.size(); ++label) {
    if (occurs[label]) found.push_back(label);
  }
  if (found.size() == occurs.size()) return {};
  if (cure.empty()) {
    cure = found.size() == 1 ? "0 instead" : fmt::format("numbers from 0 to {}", found.size() - 1);
  }
  const bool has_gaps = found.back() - found.front() >= found.size();
  const std::span shown(found.data(), std::min(found.size(), kMostShown));
  const std::string values =
      !has_gaps
          ? fmt::format("{} to {}", found.front(), found.back())
          : fmt::format(
                "{}{}", fmt::join(shown, ", "),
                shown.size() < found.size() ? fmt::format(", ... ({} in all)", found.size()) : "");
  const std::string without =
      has_gaps ? fmt::format(", of which {} have no sample", occurs.size() - found.size())
               : fmt::format(" and has no samples of class {}{}", found.front() == 1 ? "" : "0 to ",
                             found.front() - 1);
  return {fmt::format(
      "{}: its labels are {}: classes are counted from 0, so the model learns {}{}; {} would make "
      "{} class{} of them",
      file, values, occurs.size(), without, cure, found.size(), found.size() == 1 ? "" : "es")};
}

}  // namespace lockstep
