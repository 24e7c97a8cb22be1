#include "observe/history/crew_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/files/atomic_file.h"
#include "base/files/file_lock.h"
#include "base/files/open_file.h"
#include "base/say.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = 64 << 20;

constexpr std::array kStates = {
    std::pair{JobState::kWaiting, "waiting"}, std::pair{JobState::kRunning, "running"},
    std::pair{JobState::kDone, "done"}, std::pair{JobState::kStopped, "stopped"},
    std::pair{JobState::kFailed, "failed"}};

const char* NameOf(JobState state) { return kStates.at(static_cast<size_t>(state)).second; }

JobState StateOf(const std::string& name) {
  for (const auto& [state, its_name] : kStates) {
    if (name == its_name) return state;
  }
  throw BugError("no state of a job: {}", name);
}

std::string FilePath(const std::string& folder) { return folder + "/crew.json"; }
std::string LockPath(const std::string& folder) { return folder + "/crew.lock"; }

Json JsonOf(const JobRecord& job) {
  Json json{{"name", job.name}, {"state", NameOf(job.state)}};
  if (job.begin > 0) json["begin"] = job.begin;
  if (job.end == 0) return json;
  json["end"] = job.end;
  json["seconds"] = job.seconds;
  json["status"] = static_cast<int>(job.status);
  json["signal"] = job.signal;
  json["line"] = job.line;
  return json;
}

JobRecord RecordOf(const Json& json) {
  return {.name = json.at("name"),
          .state = StateOf(json.at("state")),
          .begin = json.value("begin", 0.0),
          .end = json.value("end", 0.0),
          .seconds = json.value("seconds", 0.0),
          .status = static_cast<ExitStatus>(json.value("status", 0)),
          .signal = json.value("signal", 0),
          .line = json.value("line", "")};
}

}  // namespace

CrewFile::CrewFile(const std::string& folder) : path_(FilePath(folder)) {
  std::string why;
  lock_ = OpenPlainFile(LockPath(folder), kInRunFolder, O_RDWR | O_CREAT, why);
  if (lock_.get() < 0) throw UsageError("{}: cannot be opened: {}", LockPath(folder), why);
  // Any other error of LockFile() says that the file system has no locks. The crew then runs without the lock.
  if (LockFile(lock_.get()) == EWOULDBLOCK) {
    throw UsageError("{}: another command runs its jobs in it: wait until it has ended", folder);
  }
  RemoveTornWrites(path_);
}

void CrewFile::Write(const std::vector<JobRecord>& jobs) {
  Json all{{"jobs", Json::array()}};
  for (const JobRecord& job : jobs) all["jobs"].push_back(JsonOf(job));
  try {
    // A job's error message may have bytes that are not valid UTF-8.
    WriteFileAtomically(path_, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    if (!std::exchange(warned_, true)) Warn(error.what());
  }
}

bool CrewFile::HasCrew(const std::string& folder) {
  std::string why;
  const FileDescriptor lock = OpenPlainFile(LockPath(folder), kInRunFolder, O_RDONLY, why);
  return lock.get() >= 0 && IsLocked(lock.get());
}

std::vector<JobRecord> CrewFile::Read(const std::string& folder) {
  std::vector<JobRecord> jobs;
  const bool has_crew = HasCrew(folder);
  std::string why;
  const std::string text = ReadPlainFile(FilePath(folder), kInRunFolder, kMostBytes, why);
  try {
    const Json all = Json::parse(text);
    for (const Json& json : all.at("jobs")) jobs.push_back(RecordOf(json));
  } catch (const std::exception&) {
    return {};
  }
  for (JobRecord& job : jobs) {
    if (job.state == JobState::kRunning && !has_crew) job.state = JobState::kStopped;
  }
  return jobs;
}

}  // namespace lockstep
