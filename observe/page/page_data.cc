#include "observe/page/page_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "observe/history/run_comparison.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

PageData::PageData(const std::vector<std::string>& run_dirs, bool live) : live_(live) {
  for (const std::string& run_dir : run_dirs) {
    runs_.push_back(std::make_unique<RunData>(run_dir, static_cast<int64_t>(runs_.size())));
  }
}

Json PageData::All() { return Since(-1); }

Json PageData::Since(int64_t version) {
  Json result{{"live", live_}, {"time", UnixSeconds()}, {"version", 0}, {"runs", Json::array()}};
  for (const std::unique_ptr<RunData>& run : runs_) {
    if (run->Refresh(version_ + 1)) ++version_;
    Json changed = run->Since(version);
    if (!changed.is_null()) result["runs"].push_back(std::move(changed));
  }
  result["version"] = version_;
  if (!result["runs"].empty()) result["differences"] = Differences();
  return result;
}

std::vector<std::string> PageData::Unreadable() const {
  std::vector<std::string> lines;
  for (const std::unique_ptr<RunData>& run : runs_) {
    std::ranges::copy(run->Unreadable(), std::back_inserter(lines));
  }
  return lines;
}

Json PageData::CurvesWithin(CurveAxis axis, double from, double to) const {
  Json list = Json::array();
  for (size_t i = 0; i < runs_.size(); ++i) {
    list.push_back({{"id", i}, {"curves", runs_[i]->CurvesWithin(axis, from, to)}});
  }
  return list;
}

Json PageData::Differences() const {
  std::vector<ComparedRuns> histories;
  for (const std::unique_ptr<RunData>& run : runs_) {
    if (!run->history().config()) return nullptr;
    histories.push_back({&run->history()});
  }
  Json list = Json::array();
  if (histories.size() < 2) return list;
  for (const FieldDifference& difference : ConfigDifferences(histories)) {
    list.push_back({{"field", difference.field}, {"values", difference.values}});
  }
  return list;
}

std::vector<std::string> RunFoldersFor(const std::vector<std::string>& folders) {
  std::vector<std::string> runs;
  std::error_code ignored;
  for (const std::string& folder : folders) {
    std::vector<std::string> trainings{folder};
    if (KindOf(folder) == FolderKind::kOther) {
      if (!std::filesystem::is_directory(folder, ignored)) RequireTraining(folder);
      trainings = TrainingsIn(folder);
      if (trainings.empty()) {
        throw UsageError("{}: it is no run folder, and there are no run folders in it", folder);
      }
      std::ranges::sort(trainings);
    }
    for (const std::string& training : trainings) {
      const std::vector<std::string> found = RunFoldersOf(training);
      runs.insert(runs.end(), found.begin(), found.end());
    }
  }
  if (std::cmp_greater(runs.size(), kMostRuns)) {
    throw UsageError("{} runs: a page shows at most {}: name fewer", runs.size(), kMostRuns);
  }
  return runs;
}

}  // namespace lockstep
