// PageData: makes the JSON object with all data that the page shows of its runs. The fields of the object are
//
//   live         whether the page can ask a server for newer data
//   time         the Unix time at which this object was made
//   version      the argument for a later Since(), which then returns what has changed since this object was made
//   runs         a list of the runs (observe/page/run_data.h)
//   differences  a list of {field, values}: the config fields in which the runs differ; null in place of
//                the list if the config of any run cannot be read
//
// what can fail -> what the caller sees -> the test that shows it (observe/page/page_data_test.cc)
//   a folder is not a run folder -> Error (kUsage) from RunFoldersFor() -> RunFoldersFor.NamesWhatIsNoRun
//   a file of a run is missing or damaged -> the object has the reason in place of its figures
//     -> PageDataTest.ShowsWhatThereIs
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "observe/page/run_data.h"

namespace lockstep {

inline constexpr int kMostRuns = 100;

class PageData {
 public:
  // Reads the run folders. `live` is the value of the object's field of that name.
  PageData(const std::vector<std::string>& run_dirs, bool live);

  // Reads the run folders again, and returns the whole object.
  nlohmann::ordered_json All();

  // Reads the run folders again, and returns what has changed since the object with this `version`: for each run that
  // has changed, its id and the fields that have changed.
  nlohmann::ordered_json Since(int64_t version);

  // Returns a line for each file of the runs that cannot be read.
  std::vector<std::string> Unreadable() const;

  // Returns a list of {id, curves} for all runs (RunData::CurvesWithin()).
  nlohmann::ordered_json CurvesWithin(CurveAxis axis, double from, double to) const;

 private:
  nlohmann::ordered_json Differences() const;

  bool live_;
  int64_t version_ = 0;
  std::vector<std::unique_ptr<RunData>> runs_;
};

// Returns the run folders that a user names. A given run folder stands for itself, and that of a cross-validation for
// all of its folds, including those that have not begun. A given folder that contains such folders stands for all of
// them, in the order of their names. Throws Error (kUsage) if a given folder neither is nor contains such a folder, or
// if there are more than kMostRuns run folders.
std::vector<std::string> RunFoldersFor(const std::vector<std::string>& folders);

}  // namespace lockstep
