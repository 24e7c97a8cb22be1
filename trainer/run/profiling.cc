#include "trainer/run/profiling.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "comm/together.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kLookInterval = 0.2;  // seconds between two checks for a request
constexpr int64_t kMostSteps = 100;    // the most steps in one recording

// Returns the number of steps that the request file `path` asks for, at least 1 and at most kMostSteps; 1 if the file
// has no number.
int64_t StepsOf(const std::string& path) {
  std::ifstream file(path);
  int64_t steps = 0;
  if (!(file >> steps)) return 1;
  return std::clamp<int64_t>(steps, 1, kMostSteps);
}

}  // namespace

Profiling::Profiling(const config::Config& config, const World& world, RunEvents& events,
                     Options options)
    : when_(config.profile()),
      run_dir_(config.run_dir()),
      world_(world),
      events_(events),
      options_(std::move(options)),
      profiler_(world.device) {}

int64_t Profiling::Asked() {
  if (world_.rank() != 0) return 0;
  const double now = SecondsSinceBoot();
  if (now - looked_s_ < kLookInterval || user_waits_) return asked_;
  looked_s_ = now;
  const std::string request = ProfileRequestPath(run_dir_);
  std::error_code ignored;
  if (fs::exists(request, ignored)) {
    user_waits_ = true;
    asked_ += StepsOf(request);
  }
  return asked_;
}

bool Profiling::IsDue(int64_t step) const {
  const int64_t first = when_.first_step();
  if (first == 0 || step < first) return false;
  return step == first || (when_.every() > 0 && (step - first) % when_.every() == 0);
}

void Profiling::BeforeStep(int64_t step) {
  is_due_ |= IsDue(step);
  if (!profiler_.is_recording()) {
    const int64_t asked = heard_ - std::exchange(begun_, heard_);
    const int64_t steps = std::max(asked, std::exchange(is_due_, false) ? when_.steps() : 0);
    if (steps > 0) {
      answers_user_ = asked > 0;
      first_step_ = step;
      last_step_ = std::min(step + steps - 1, options_.last_step);
      profiler_.Start();
    }
  }
  step_range_.emplace(fmt::format("{}{}", kStepRange, step), Range::Of::kStep);
}

void Profiling::AfterStep(int64_t step, bool ends) {
  step_range_.reset();
  if (!profiler_.is_recording() || (step != last_step_ && !ends)) return;
  last_step_ = step;
  Write();
}

void Profiling::Write() {
  Json own;
  try {
    own = JsonOf(WriteTrace());
  } catch (const std::exception& exception) {
    own = {{"error", ErrorOf(exception).what()}};
  }
  const std::vector<std::string> ranks = GatherTexts(
      own.dump(-1, ' ', false, Json::error_handler_t::replace), "the ranks' profiles", world_.host);
  if (world_.rank() != 0) return;
  try {
    WriteSummary(ranks);
  } catch (const std::exception& exception) {
    events_.Emit(RunWarning{
        fmt::format("no profile of step {}: {}", first_step_, ErrorOf(exception).what())});
  }
  if (!std::exchange(answers_user_, false)) return;
  user_waits_ = false;
  std::error_code ignored;
  fs::remove(ProfileRequestPath(run_dir_), ignored);
}

RankProfile Profiling::WriteTrace() {
  nlohmann::json trace = profiler_.Stop();
  const bool on_gpu = world_.device.is_cuda();
  AddPlaces(trace, options_.graphs(), on_gpu);
  trace["distributedInfo"] = {
      {"backend", on_gpu ? "nccl" : "mpi"}, {"rank", world_.rank()}, {"world_size", world_.size()}};
  RankProfile profile = ProfileOf(trace, on_gpu, options_.peak_flops);
  if (profile.kernels.empty()) {
    throw CheckpointError("nothing was recorded: does another profiler, such as nsys, run?");
  }
  profile.rank = world_.rank();
  profile.device = on_gpu ? at::cuda::getDeviceProperties(world_.device.index())->name : "CPU";
  // create_directory() makes no parent folders, so the run folder is not made again if somebody has removed it.
  std::error_code error;
  for (const std::string& folder : {run_dir_ + "/profiles", ProfileFolder(run_dir_, first_step_),
                                    TraceFolder(run_dir_, first_step_)}) {
    fs::create_directory(folder, error);
    if (error) throw CheckpointError("{}: cannot be made: {}", folder, error.message());
  }
  const std::string path = TracePath(run_dir_, first_step_, world_.rank());
  WriteFileAtomically(path, [&](const AppendBytes& append) { AppendTrace(trace, path, append); });
  return profile;
}

void Profiling::WriteSummary(const std::vector<std::string>& ranks) {
  RunProfile profile{.step = first_step_,
                     .steps = last_step_ - first_step_ + 1,
                     .time = UnixSeconds(),
                     .version = options_.version,
                     .ranks = {},
                     .slower = {}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto json = Json::parse(ranks[rank]);
    if (json.contains("error")) {
      throw CheckpointError("rank {}: {}", rank, json["error"].get<std::string>());
    }
    profile.ranks.push_back(RankProfileOf(json));
  }
  try {
    profile.slower = SlowerThanFirst(profile);
  } catch (const std::exception& exception) {
    events_.Emit(RunWarning{fmt::format("the profile of step {} is not compared with the first: {}",
                                        first_step_, ErrorOf(exception).what())});
  }
  WriteRunProfile(profile, run_dir_);
  events_.Emit(Profiled{.step = first_step_,
                        .steps = profile.steps,
                        .folder = ProfileFolder(run_dir_, first_step_),
                        .slower = profile.slower});
}

std::vector<std::string> Profiling::SlowerThanFirst(const RunProfile& profile) {
  std::vector<std::string> slower;
  const std::vector<int64_t> earlier = ProfilesOf(run_dir_);
  if (earlier.empty() || earlier.front() >= first_step_) return slower;
  const RunProfile first = ReadRunProfile(fmt::format("{}@{}", run_dir_, earlier.front()));
  if (first.ranks.size() != profile.ranks.size()) return slower;
  for (size_t rank = 0; rank < first.ranks.size(); ++rank) {
    if (first.ranks[rank].device != profile.ranks[rank].device) continue;
    for (const std::string& sentence : SlowerSince(first.ranks[rank], profile.ranks[rank])) {
      slower.push_back(fmt::format("rank {}: {}", rank, sentence));
    }
  }
  return slower;
}

}  // namespace lockstep
