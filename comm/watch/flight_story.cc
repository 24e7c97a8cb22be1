#include "comm/watch/flight_story.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

const FlightRecord* Find(const Flight::Lane& lane, uint64_t sequence) {
  if (lane.records.empty() || sequence < lane.records.front().sequence ||
      sequence > lane.records.back().sequence) {
    return nullptr;
  }
  return &lane.records[sequence - lane.records.front().sequence];
}

bool SameCall(const FlightRecord& a, const FlightRecord& b) {
  return a.op == b.op && a.bytes == b.bytes && a.label == b.label;
}

std::string RanksText(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Describes the first collective that differs between ranks. Returns nothing if no collective differs.
std::optional<std::string> FirstDifference(const std::vector<Flight>& flights, Channel channel) {
  uint64_t first = 0;
  uint64_t last = UINT64_MAX;
  for (const Flight& flight : flights) {
    const Flight::Lane& lane = flight.of(channel);
    if (lane.records.empty()) return std::nullopt;
    first = std::max(first, lane.records.front().sequence);
    last = std::min(last, lane.records.back().sequence);
  }
  for (uint64_t sequence = first; sequence <= last; ++sequence) {
    std::vector<std::pair<const FlightRecord*, std::vector<int>>> calls;
    for (const Flight& flight : flights) {
      const FlightRecord* record = Find(flight.of(channel), sequence);
      if (record == nullptr) continue;
      auto same = std::find_if(calls.begin(), calls.end(),
                               [&](const auto& call) { return SameCall(*call.first, *record); });
      if (same == calls.end()) same = calls.insert(calls.end(), {record, {}});
      same->second.push_back(flight.rank);
    }
    if (calls.size() < 2) continue;
    // The smallest group of ranks comes first, because these ranks are most likely wrong. Between groups of equal size,
    // the group whose first rank is higher comes first, so that the group with rank 0 serves as the reference.
    std::stable_sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.size(), -a.second.front()) <
             std::pair(b.second.size(), -b.second.front());
    });
    return fmt::format(
        "{} made another call than {} as {} collective {} of step {}: {} instead of {}",
        RanksText(calls[0].second), RanksText(calls[1].second), NameOf(channel), sequence,
        calls[0].first->step, TextOf(*calls[0].first), TextOf(*calls[1].first));
  }
  return std::nullopt;
}

// Returns how many collectives are over. A collective is over if all ranks have enqueued it and at least one rank has
// recorded that it is done. A rank whose process was killed or stopped may have had no time to record that the
// collective is done.
uint64_t Passed(const std::vector<Flight>& flights, Channel channel) {
  uint64_t all_came = UINT64_MAX;
  uint64_t one_is_done = 0;
  for (const Flight& flight : flights) {
    all_came = std::min(all_came, flight.of(channel).enqueued);
    one_is_done = std::max(one_is_done, flight.of(channel).done);
  }
  return std::min(all_came, one_is_done);
}

// Describes the oldest collective in which a rank waits, and the ranks that have not enqueued this collective. Returns
// nothing if no rank waits.
std::optional<std::string> Absence(const std::vector<Flight>& flights, Channel channel) {
  const FlightRecord* awaited = nullptr;
  const uint64_t passed = Passed(flights, channel);
  for (const Flight& flight : flights) {
    const Flight::Lane& lane = flight.of(channel);
    const uint64_t done = std::max(lane.done, passed);
    if (done == lane.enqueued) continue;
    const FlightRecord* pending = Find(lane, done + 1);
    if (pending != nullptr && (awaited == nullptr || pending->sequence < awaited->sequence)) {
      awaited = pending;
    }
  }
  if (awaited == nullptr) return std::nullopt;
  std::vector<int> missing;
  const Flight* one_missing = nullptr;
  for (const Flight& flight : flights) {
    if (flight.of(channel).enqueued >= awaited->sequence) continue;
    missing.push_back(flight.rank);
    if (one_missing == nullptr) one_missing = &flight;
  }
  if (missing.empty()) {
    return fmt::format(
        "{} collective {} of step {} does not end although every rank has come to it: {}",
        NameOf(channel), awaited->sequence, awaited->step, TextOf(*awaited));
  }
  return fmt::format("{} {} not come to {} collective {} of step {}, {}; rank {} is {}",
                     RanksText(missing), missing.size() == 1 ? "has" : "have", NameOf(channel),
                     awaited->sequence, awaited->step, TextOf(*awaited), one_missing->rank,
                     WhereIs(*one_missing));
}

std::string TimeText(int64_t unix_ns) {
  return fmt::format("{:%H:%M:%S}.{:03}", fmt::localtime(unix_ns / 1'000'000'000),
                     unix_ns / 1'000'000 % 1000);
}

// Describes the state of a collective on one rank: when it was enqueued, and how long it took or whether it still
// waits.
std::string StateText(const Flight& flight, Channel channel, uint64_t sequence) {
  const Flight::Lane& lane = flight.of(channel);
  if (sequence > lane.enqueued) return "-";
  const FlightRecord* record = Find(lane, sequence);
  if (record == nullptr) return "?";
  if (record->done_ns == 0) return "waits since " + TimeText(record->enqueued_ns);
  return fmt::format("{} +{:.3f} ms", TimeText(record->enqueued_ns),
                     static_cast<double>(record->done_ns - record->enqueued_ns) / 1e6);
}

}  // namespace

std::string TextOf(const FlightRecord& record) {
  return fmt::format("{} of {} bytes{}{}{}", NameOf(record.op), record.bytes,
                     record.label.empty() ? "" : " (", record.label,
                     record.label.empty() ? "" : ")");
}

std::string WhereIs(const Flight& flight) {
  for (const Channel channel : {Channel::kNccl, Channel::kMpi}) {
    const Flight::Lane& lane = flight.of(channel);
    if (lane.done == lane.enqueued) continue;
    const FlightRecord* pending = Find(lane, lane.done + 1);
    if (pending == nullptr) continue;
    return fmt::format("at step {}, in {} collective {}: {}", pending->step, NameOf(channel),
                       pending->sequence, TextOf(*pending));
  }
  // No collective is pending, so the newest collective of all channels is described.
  const FlightRecord* last = nullptr;
  Channel channel_of_last = Channel::kMpi;
  for (const Channel channel : kChannels) {
    const Flight::Lane& lane = flight.of(channel);
    if (lane.records.empty()) continue;
    if (last != nullptr && last->enqueued_ns >= lane.records.back().enqueued_ns) continue;
    last = &lane.records.back();
    channel_of_last = channel;
  }
  if (last == nullptr) return "before its first collective";
  return fmt::format("at step {}, after {} collective {}: {}", last->step, NameOf(channel_of_last),
                     last->sequence, TextOf(*last));
}

std::optional<std::string> Disagreement(const std::vector<Flight>& flights) {
  for (const Channel channel : {Channel::kNccl, Channel::kMpi}) {
    if (auto difference = FirstDifference(flights, channel)) return difference;
  }
  for (const Channel channel : {Channel::kNccl, Channel::kMpi}) {
    if (auto absence = Absence(flights, channel)) return absence;
  }
  return std::nullopt;
}

std::string Story(const std::vector<Flight>& flights, size_t count) {
  std::string story;
  std::set<std::string> verdicts;
  for (const Flight& flight : flights) {
    if (!flight.verdict.empty()) verdicts.insert(flight.verdict);
  }
  for (const std::string& verdict : verdicts) story += fmt::format("verdict: {}\n", verdict);
  const int world_size = flights.front().world_size;
  if (std::cmp_less(flights.size(), world_size)) {
    story +=
        fmt::format("records of {} of {} ranks: the others' are on machines with another disk\n",
                    flights.size(), world_size);
  }
  for (const Channel channel : kChannels) {
    uint64_t last = 0;
    for (const Flight& flight : flights) last = std::max(last, flight.of(channel).enqueued);
    if (last == 0) continue;
    story += fmt::format("\n{} collectives\n{:>8} {:>6}", NameOf(channel), "number", "step");
    for (const Flight& flight : flights) {
      story += fmt::format("  {:<24}", fmt::format("rank {}", flight.rank));
    }
    story += "  what\n";
    for (uint64_t sequence = last - std::min<uint64_t>(last, count) + 1; sequence <= last;
         ++sequence) {
      const FlightRecord* record = nullptr;
      for (const Flight& flight : flights) {
        if (record == nullptr) record = Find(flight.of(channel), sequence);
      }
      if (record == nullptr) continue;
      story += fmt::format("{:>8} {:>6}", sequence, record->step);
      for (const Flight& flight : flights) {
        story += fmt::format("  {:<24}", StateText(flight, channel, sequence));
      }
      story += fmt::format("  {}\n", TextOf(*record));
    }
  }
  if (const auto disagreement = Disagreement(flights))
    story += fmt::format("\n{}\n", *disagreement);
  return story;
}

Flights ReadFlights(const std::string& run_dir) {
  Flights flights;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir + "/flight", error)) {
    try {
      flights.read.push_back(FlightRecorder::Read(entry.path()));
    } catch (const Error& damage) {
      flights.damaged.emplace_back(damage.what());
    }
  }
  if (flights.read.empty() && flights.damaged.empty()) {
    throw UsageError("{}: no flight records here (a run of several ranks keeps them in {}/flight)",
                     run_dir, run_dir);
  }
  if (flights.read.empty()) throw DataError("{}", flights.damaged.front());
  std::ranges::sort(flights.read, {}, &Flight::rank);
  return flights;
}

std::string FlightPath(const std::string& run_dir, int rank) {
  return fmt::format("{}/flight/rank-{}", run_dir, rank);
}

}  // namespace lockstep
