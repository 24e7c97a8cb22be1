// PageData: what the page shows of all its runs, as JSON.
//
//   live         whether the page can ask for more
//   time         the Unix time of this object
//   version      what Since() takes to tell later what has changed
//   runs         a list of the runs (observe/page/run_data.h)
//   differences  a list of {field, values}: the config fields in which the runs differ; null if a run has no config
//
// what can fail -> what the caller sees -> the test that shows it (observe/page/page_data_test.cc)
//   a folder is no run folder -> Error (kUsage) from RunFoldersFor() -> RunFoldersFor.NamesWhatIsNoRun
//   a file of a run is missing or damaged -> the object says so where its figures would stand
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
  // Reads the run folders. `live`: see above.
  PageData(const std::vector<std::string>& run_dirs, bool live);

  // Returns all that is known now.
  nlohmann::ordered_json All();

  // Reads what has changed, and returns what has changed since the object with this `version`: of each run that has,
  // the id and the fields that have.
  nlohmann::ordered_json Since(int64_t version);

  // Returns a list of {id, curves} of all runs (RunData::CurvesWithin()).
  nlohmann::ordered_json CurvesWithin(CurveAxis axis, double from, double to) const;

 private:
  nlohmann::ordered_json Differences() const;

  bool live_;
  int64_t version_ = 0;
  std::vector<std::unique_ptr<RunData>> runs_;
};

// Returns the run folders that a user means: those given, and in place of a folder of run folders all of these, in the
// order of their names. Throws Error (kUsage) if a folder is neither, or if there are more than kMostRuns.
std::vector<std::string> RunFoldersFor(const std::vector<std::string>& folders);

}  // namespace lockstep
