// Reads and writes the files of a run's profiles. A profile has the folder profiles/STEP in the run folder, where STEP
// is the first profiled step. The folder contains
//
//   traces/rank_0.pt.trace.json.gz, ...  a Chrome trace of each rank (ui.perfetto.dev, chrome://tracing). TensorBoard
//     and Holistic Trace Analysis read every JSON file of a folder as a trace, so traces/ has no other files
//   summary.json  {"step", "steps", "time" (Unix), "version", "ranks": [JsonOf(RankProfile)], "slower": [sentences]}
//
// what can fail -> what the caller sees -> the test that shows it (observe/profile/profile_files_test.cc)
//   a file is not a trace, is cut off, or has other fields -> Error (kUsage) with the path
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
  int64_t step = 0;   // the first profiled step
  int64_t steps = 0;  // the number of profiled steps
  double time = 0;    // the Unix time at which the profile was made
  std::string version;
  std::vector<RankProfile> ranks;
  // Sentences that say which kernels have become slower since the run's first profile.
  std::vector<std::string> slower;
};

std::string ProfileFolder(const std::string& run_dir, int64_t step);

// Return the folder of a profile's traces, and the path of a rank's trace.
std::string TraceFolder(const std::string& run_dir, int64_t step);
std::string TracePath(const std::string& run_dir, int64_t step, int rank);

// Returns the path of the file with which a user asks the job that trains in `run_dir` for a profile. The file contains
// the number of steps to profile.
std::string ProfileRequestPath(const std::string& run_dir);

// Appends `trace` as text, compressed by gzip if `path` ends in .gz.
void AppendTrace(const nlohmann::json& trace, const std::string& path, const AppendBytes& append);

nlohmann::ordered_json JsonOf(const RunProfile& profile);

// Writes the profile's summary.json. Throws Error (kCheckpoint) if the file cannot be written.
void WriteRunProfile(const RunProfile& profile, const std::string& run_dir);

// Returns the first step of each profile of the run that has a summary, in ascending order.
std::vector<int64_t> ProfilesOf(const std::string& run_dir);

// Reads a profile. `name` is RUN@STEP, a run folder (which means its last profile), a summary.json, or a trace file of
// this program or of PyTorch, compressed or not. Throws Error (kUsage) if the profile cannot be read.
RunProfile ReadRunProfile(const std::string& name);

// Returns whether `name` names a profile: RUN@STEP or a regular file.
bool NamesProfile(const std::string& name);

}  // namespace lockstep
