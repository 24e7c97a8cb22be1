// FlightRecorder: keeps a record of this rank's last collectives, in memory that outlives the process.
//
// Promise: after MoveTo() the record stays readable after any end of the process, including kill -9, because it is then
// a file that is mapped into memory, and the kernel keeps what was written.
//
// Invariants:
//   1. A collective is recorded when it is enqueued and again when it is done. Each recording takes one reading of the
//      clock and a few stores, and no lock, allocation or system call.
//   2. A channel is a sequence of collectives (MPI's or NCCL's). It numbers its collectives from 1, and each collective
//      has the same number on every rank. The collectives of a channel finish in order.
//   3. Each record holds a chain, which is a hash of all collectives of the channel up to this record. If two ranks
//      have the same chain for collective N, their first N collectives are the same.
//   4. One thread at a time records enqueued collectives. Another thread marks finished collectives. Any other thread
//      may read.
//
// what can fail -> what the caller sees -> the test that shows it (comm/watch/flight_recorder_test.cc)
//   the file cannot be made -> Error (kCheckpoint) from MoveTo()
//     -> FlightRecorder.SaysWhyItsFileCannotBeMade
//   a file that is no record, or cut short -> Error (kData) from Read()
//     -> FlightRecorder.RefusesWhatIsNoRecord
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The kind of an operation. kReplay is the replay of a CUDA graph, with all collectives that the graph holds.
enum class Op : uint8_t { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier, kReplay };

// Returns the operation's name, such as "all-reduce".
std::string_view NameOf(Op op);

// The library that carries out a collective.
enum class Channel : uint8_t { kMpi, kNccl };
inline constexpr std::array kChannels{Channel::kMpi, Channel::kNccl};

std::string_view NameOf(Channel channel);

// The purpose of a collective, as a number that FlightRecorder::MakeLabel() gave to a text.
struct Label {
  uint32_t id = 0;
};

struct FlightRecord {
  uint64_t sequence = 0;
  Op op = Op::kBarrier;
  uint64_t bytes = 0;
  std::string label;
  int64_t step = 0;         // 0: before the first step
  int64_t enqueued_ns = 0;  // Unix time
  // The Unix time when the recorder learned that the collective was done (with NCCL: by a poll); 0: not done.
  int64_t done_ns = 0;
  uint64_t chain = 0;
};

// The flight record of one rank, or a part of it.
struct Flight {
  int rank = 0;
  int world_size = 0;
  std::string verdict;  // the fault that ended the run; empty: there was none
  struct Lane {
    uint64_t enqueued = 0;              // how many collectives were enqueued
    uint64_t done = 0;                  // how many of them are done
    std::vector<FlightRecord> records;  // some of the last collectives, the oldest first
  };
  std::array<Lane, kChannels.size()> lanes;

  Lane& of(Channel channel) { return lanes[static_cast<size_t>(channel)]; }
  const Lane& of(Channel channel) const { return lanes[static_cast<size_t>(channel)]; }
};

// How many collectives a channel has enqueued and finished.
struct ChannelState {
  uint64_t enqueued = 0;  // how many collectives were enqueued
  uint64_t done = 0;      // how many of these are done
  // The number of the newest collective whose number is a multiple of kMarkEvery, or 0 if there is none. `mark_chain`
  // is the chain of that collective.
  uint64_t mark = 0;
  uint64_t mark_chain = 0;
};

class FlightRecorder {
 public:
  static constexpr uint64_t kMarkEvery = 1024;

  FlightRecorder();
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void SetRank(int rank, int world_size);

  // Moves the record from anonymous memory into the file `path`. No collective may be running. Throws Error
  // (kCheckpoint).
  void MoveTo(const std::string& path);

  // Makes a label from a text. A text of more than 159 bytes is cut. There can be 1,022 different texts; all further
  // texts share the label "other".
  Label MakeLabel(std::string_view text);

  // Sets the number of the optimizer step, counted from 1, to which the collectives after this call belong.
  void SetStep(int64_t step);

  // Records that a collective was enqueued, and returns the collective's number.
  uint64_t Enqueued(Channel channel, Op op, uint64_t bytes, Label label);

  // Marks collective `sequence` and all collectives before it as done.
  void Done(Channel channel, uint64_t sequence);

  // Records the fault that ended the run.
  void SetVerdict(std::string_view verdict);

  ChannelState State(Channel channel) const;

  // Returns a part of the record: for each channel the last `before` collectives that are done, and the next `after`
  // collectives that are not done.
  Flight Around(uint64_t before, uint64_t after) const;

  // Reads the record in the file `path`. Throws Error (kData).
  static Flight Read(const std::string& path);

 private:
  struct Memory;

  Memory* memory_;
};

}  // namespace lockstep
