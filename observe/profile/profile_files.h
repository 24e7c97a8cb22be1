// The files of a run's profiles. A profile has the folder profiles/STEP of the run folder, where STEP is the first
// profiled step. In it are
//
//   traces/rank_0.pt.trace.json.gz, ...  a Chrome trace of each rank (ui.perfetto.dev, chrome://tracing). TensorBoard
//     and Holistic Trace Analysis take every JSON file of a folder for a trace, so nothing else is there
//   summary.json  {"step", "steps", "time" (Unix), "version", "ranks": [JsonOf(RankProfile)], "slower": [sentences]}
//
// what can fail -> what the caller sees -> the test that shows it (observe/profile/profile_files_test.cc)
//   a file is no trace, is cut off, or of a program that writes other fields -> Error (kUsage) with the path
//     -> ProfileFiles.SaysWhatIsNoTrace
//   a run has no profile of that step -> Error (kUsage) with the steps that it has -> ProfileFiles.SaysWhichThereAre
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"
#include "observe/profile/rank_profile.h"

namespace lockstep {

struct RunProfile {
  int64_t step = 0;   // the first one
  int64_t steps = 0;  // how many
  double time = 0;    // Unix
  std::string version;
  std::vector<RankProfile> ranks;
  std::vector<std::string>
      slower;  // sentences: what has become slower since the run's first profile
};

std::string ProfileFolder(const std::string& run_dir, int64_t step);

// The folder of a profile's traces, and the path of a rank's trace.
std::string TraceFolder(const std::string& run_dir, int64_t step);
std::string TracePath(const std::string& run_dir, int64_t step, int rank);

// Returns the path of the file that asks the job that trains in the folder for a profile. It contains a number of
// steps.
std::string ProfileRequestPath(const std::string& run_dir);

// Appends `trace` as text, compressed by gzip if `path` ends in .gz.
void AppendTrace(const nlohmann::json& trace, const std::string& path, const AppendBytes& append);

nlohmann::ordered_json JsonOf(const RunProfile& profile);

// Throws Error (kCheckpoint).
void WriteRunProfile(const RunProfile& profile, const std::string& run_dir);

// Returns the steps of the run's profiles that have a summary, in rising order.
std::vector<int64_t> ProfilesOf(const std::string& run_dir);

// `name`: RUN@STEP, a run folder (its last profile), or the file of a trace, compressed or not, of this program or of
// PyTorch. Throws Error (kUsage).
RunProfile ReadRunProfile(const std::string& name);

// Whether `name` names a profile: RUN@STEP or a plain file.
bool NamesProfile(const std::string& name);

}  // namespace lockstep
