#include "launch/job/restarts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files/open_file.h"
#include "comm/watch/flight_story.h"

namespace lockstep {
namespace {

// After kEnough failures in a row without progress between them, the job is not started again.
constexpr int kEnough = 3;

// A job has made progress if it came more than this number of steps further than in its earlier starts. On GPUs the
// host runs ahead of the GPU, so the last step that the host has begun differs a little from one failure to the next.
constexpr int64_t kSameSteps = 8;

constexpr double kFirstDelayS = 1;
constexpr double kDelayGrowth = 5;

int64_t StepInLog(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 30;
  std::string why;
  std::istringstream log(ReadPlainFile(path, kInRunFolder, kMost, why));
  int64_t step = 0;
  for (std::string line; std::getline(log, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) continue;
    const std::string kind = event.value("event", "");
    if (kind == "start") step = 0;
    if (kind == "resume" || kind == "step") step = event.value("step", step);
  }
  return step;
}

int64_t StepInFlights(const std::string& run_dir) {
  int64_t step = 0;
  try {
    for (const Flight& flight : ReadFlights(run_dir).read) {
      for (const Flight::Lane& lane : flight.lanes) {
        for (const FlightRecord& record : lane.records) step = std::max<int64_t>(step, record.step);
      }
    }
  } catch (const Error&) {
    // A job of one rank has no flight records, so `step` stays 0.
  }
  return step;
}

}  // namespace

Restarts::Decision Restarts::After(int status, int64_t step) {
  if (status == static_cast<int>(ExitStatus::kUsage) ||
      status == static_cast<int>(ExitStatus::kData)) {
    return {.why = fmt::format("not started again, as status {} would come again", status)};
  }
  const bool further = step > furthest_ + kSameSteps || furthest_ < 0;
  failures_there_ = further ? 1 : failures_there_ + 1;
  furthest_ = std::max(furthest_, step);
  if (failures_there_ == kEnough) {
    return {.why = fmt::format(
                "not started again, as it failed {} times and came no further than step {}",
                kEnough, furthest_)};
  }
  if (count_ == most_) {
    return {.why = fmt::format("not started again, as --restarts allows no more than {}", most_)};
  }
  ++count_;
  return {.again = true, .delay_s = kFirstDelayS * std::pow(kDelayGrowth, failures_there_ - 1)};
}

int64_t FurthestStep(const std::string& run_dir) {
  return std::max(StepInLog(run_dir + "/log.jsonl"), StepInFlights(run_dir));
}

}  // namespace lockstep
