#include "observe/page/rank_table.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/round.h"
#include "comm/watch/flight_story.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNsPerMs = 1e6;

// The sums over the collectives that all ranks have finished, without the collectives before the first step.
struct Lateness {
  int64_t collectives = 0;
  // For each rank: the sum of the times by which the rank enqueued a collective later than the rank that enqueued it
  // first.
  std::vector<double> late_ms;
  std::vector<double> wait_ms;
  std::vector<int64_t> times_last;
};

void AddLane(const std::vector<Flight>& flights, Channel channel, Lateness& lateness) {
  uint64_t first = 1;
  uint64_t last = UINT64_MAX;
  for (const Flight& flight : flights) {
    const std::vector<FlightRecord>& records = flight.of(channel).records;
    if (records.empty()) return;
    first = std::max(first, records.front().sequence);
    last = std::min(last, records.back().sequence);
  }
  std::vector<const FlightRecord*> ranks(flights.size());
  for (uint64_t sequence = first; sequence <= last; ++sequence) {
    bool is_done = true;
    for (size_t i = 0; i < flights.size(); ++i) {
      const std::vector<FlightRecord>& records = flights[i].of(channel).records;
      ranks[i] = &records[sequence - records.front().sequence];
      // Collectives before the first step are left out, because they say nothing about the ranks' speed.
      is_done &= ranks[i]->done_ns > 0 && ranks[i]->step > 0;
    }
    if (!is_done) continue;
    const auto by_time = [](const FlightRecord* record) { return record->enqueued_ns; };
    const int64_t begin = by_time(*std::ranges::min_element(ranks, {}, by_time));
    const auto latest = std::ranges::max_element(ranks, {}, by_time) - ranks.begin();
    ++lateness.collectives;
    ++lateness.times_last[static_cast<size_t>(latest)];
    for (size_t i = 0; i < flights.size(); ++i) {
      lateness.late_ms[i] += static_cast<double>(ranks[i]->enqueued_ns - begin) / kNsPerMs;
      lateness.wait_ms[i] +=
          static_cast<double>(ranks[i]->done_ns - ranks[i]->enqueued_ns) / kNsPerMs;
    }
  }
}

int64_t StepOf(const Flight& flight) {
  int64_t step = 0;
  for (const Channel channel : kChannels) {
    const std::vector<FlightRecord>& records = flight.of(channel).records;
    if (!records.empty()) step = std::max(step, records.back().step);
  }
  return step;
}

Json JsonOf(const Flights& flights) {
  constexpr int kPlaces = 4;
  const size_t count = flights.read.size();
  Lateness lateness{.late_ms = std::vector<double>(count),
                    .wait_ms = std::vector<double>(count),
                    .times_last = std::vector<int64_t>(count)};
  for (const Channel channel : kChannels) AddLane(flights.read, channel, lateness);
  Json ranks = Json::array();
  std::set<std::string> verdicts;
  for (size_t i = 0; i < count; ++i) {
    const Flight& flight = flights.read[i];
    if (!flight.verdict.empty()) verdicts.insert(flight.verdict);
    Json rank{{"rank", flight.rank}, {"where", WhereIs(flight)}, {"step", StepOf(flight)}};
    if (const auto of = static_cast<double>(lateness.collectives); of > 0) {
      rank["late_ms"] = Round(lateness.late_ms[i] / of, kPlaces);
      rank["wait_ms"] = Round(lateness.wait_ms[i] / of, kPlaces);
      rank["last_share"] = Round(static_cast<double>(lateness.times_last[i]) / of, kPlaces);
    }
    ranks.push_back(std::move(rank));
  }
  return {{"ranks", std::move(ranks)},
          {"collectives", lateness.collectives},
          {"world_size", flights.read.front().world_size},
          {"disagreement", Disagreement(flights.read).value_or("")},
          {"verdicts", verdicts},
          {"damaged", flights.damaged}};
}

}  // namespace

Json RanksJson(const std::string& run_dir) {
  try {
    return JsonOf(ReadFlights(run_dir));
  } catch (const Error& error) {
    if (error.status() == ExitStatus::kUsage) return nullptr;
    return {{"ranks", Json::array()}, {"damaged", {error.what()}}};
  }
}

}  // namespace lockstep
