#include "comm/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/open_file.h"
#include "base/mix.h"
#include "base/write_all.h"

namespace lockstep {
namespace {

constexpr char kMagic[16] = "lockstep flight";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kRecords = 4096;  // the number of slots of each channel
constexpr uint32_t kLabels = 1024;
constexpr size_t kLabelBytes = 160;

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Returns the FNV-1a hash of `text`.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The memory of one record. The members are atomic, because the watchdog reads them while the trainer writes. The
// members are written and read with relaxed memory order; the release stores to Ring::enqueued and Ring::done publish
// them.
struct Slot {
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> chain;
  std::atomic<int64_t> step;
  std::atomic<int64_t> enqueued_ns;
  std::atomic<int64_t> done_ns;
  std::atomic<uint32_t> label;
  std::atomic<Op> op;
};

struct Ring {
  std::atomic<uint64_t> enqueued;
  std::atomic<uint64_t> done;
  Slot slots[kRecords];

  Slot& at(uint64_t sequence) { return slots[sequence % kRecords]; }
  const Slot& at(uint64_t sequence) const { return slots[sequence % kRecords]; }
};

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::string_view NameOf(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return "all-reduce";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kAllGather:
      return "all-gather";
    case Op::kReduceScatter:
      return "reduce-scatter";
    case Op::kBarrier:
      return "barrier";
    case Op::kReplay:
      return "replay";
  }
  return "unknown";
}

std::string_view NameOf(Channel channel) { return channel == Channel::kMpi ? "MPI" : "NCCL"; }

// The layout of the mapped memory, and of the file. Only programs with the same layout (kVersion) can read the file.
struct FlightRecorder::Memory {
  char magic[sizeof(kMagic)];
  uint32_t version;
  int32_t rank;
  int32_t world_size;
  std::atomic<uint32_t> labels;
  std::atomic<int64_t> step;
  char verdict[1024];
  uint64_t label_hash[kLabels];
  char label[kLabels][kLabelBytes];
  Ring rings[kChannels.size()];

  Ring& of(Channel channel) { return rings[static_cast<size_t>(channel)]; }
  const Ring& of(Channel channel) const { return rings[static_cast<size_t>(channel)]; }

  Flight Around(uint64_t before, uint64_t after) const {
    Flight flight{.rank = rank,
                  .world_size = world_size,
                  .verdict = std::string(verdict, strnlen(verdict, sizeof(verdict))),
                  .lanes = {}};
    const uint32_t known_labels = std::min(labels.load(std::memory_order_acquire), kLabels);
    for (const Channel channel : kChannels) {
      const Ring& ring = of(channel);
      Flight::Lane& lane = flight.of(channel);
      lane.done = ring.done.load(std::memory_order_acquire);
      lane.enqueued = ring.enqueued.load(std::memory_order_acquire);
      const uint64_t kept = std::min(lane.enqueued, kRecords - 1);
      const uint64_t first =
          std::max(lane.enqueued - kept, lane.done - std::min(lane.done, before));
      const uint64_t last = std::min(lane.enqueued, lane.done + after);
      for (uint64_t sequence = first + 1; sequence <= last; ++sequence) {
        const Slot& slot = ring.at(sequence);
        const uint32_t id = slot.label.load(kRelaxed);
        lane.records.push_back({.sequence = sequence,
                                .op = slot.op.load(kRelaxed),
                                .bytes = slot.bytes.load(kRelaxed),
                                .label = id < known_labels ? LabelText(id) : "",
                                .step = slot.step.load(kRelaxed),
                                .enqueued_ns = slot.enqueued_ns.load(kRelaxed),
                                .done_ns = slot.done_ns.load(kRelaxed),
                                .chain = slot.chain.load(kRelaxed)});
      }
    }
    return flight;
  }

  std::string LabelText(uint32_t id) const { return {label[id], strnlen(label[id], kLabelBytes)}; }
};

FlightRecorder::FlightRecorder() {
  void* memory =
      mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = new (memory) Memory{};
  std::memcpy(memory_->magic, kMagic, sizeof(kMagic));
  memory_->version = kVersion;
  memory_->labels = 2;  // label 0: no label; label 1: for texts after the table is full
  std::strcpy(memory_->label[1], "other");
  memory_->label_hash[1] = HashOf("other");
}

FlightRecorder::~FlightRecorder() { munmap(memory_, sizeof(Memory)); }

void FlightRecorder::SetRank(int rank, int world_size) {
  memory_->rank = rank;
  memory_->world_size = world_size;
}

void FlightRecorder::MoveTo(const std::string& path) {
  const auto fail = [&] {
    throw CheckpointError("{}: the flight record cannot be made: {}", path, std::strerror(errno));
  };
  // Rank 0 empties the folder before each run. On a machine that does not share its disk with rank 0's machine, the
  // file of an earlier run may still exist.
  unlink(path.c_str());
  std::string why;
  const FileDescriptor file = OpenPlainFile(path, kInFlightFolder, O_CREAT | O_EXCL | O_RDWR, why);
  if (file.get() < 0) throw CheckpointError("{}: the flight record cannot be made: {}", path, why);
  // Every byte of the file is written, so that a full disk leads to an error here and not to a SIGBUS later.
  const std::string_view bytes(reinterpret_cast<const char*>(memory_), sizeof(Memory));
  if (const int error = WriteAll(file.get(), bytes); error != 0) {
    errno = error;
    fail();
  }
  // The mapped file, which is a copy of the memory, replaces the memory at the same address.
  const bool mapped = mmap(memory_, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           file.get(), 0) != MAP_FAILED;
  if (!mapped) fail();
}

Label FlightRecorder::MakeLabel(std::string_view text) {
  text = text.substr(0, kLabelBytes - 1);
  const uint32_t count = memory_->labels.load(kRelaxed);
  for (uint32_t id = 2; id < count; ++id) {
    if (text == memory_->label[id]) return {id};
  }
  if (count == kLabels) return {1};
  std::memcpy(memory_->label[count], text.data(), text.size());
  memory_->label_hash[count] = HashOf(text);
  memory_->labels.store(count + 1, std::memory_order_release);
  return {count};
}

void FlightRecorder::SetStep(int64_t step) { memory_->step.store(step, kRelaxed); }

uint64_t FlightRecorder::Enqueued(Channel channel, Op op, uint64_t bytes, Label label) {
  Ring& ring = memory_->of(channel);
  const uint64_t last = ring.enqueued.load(kRelaxed);
  const uint64_t chain = last == 0 ? 0 : ring.at(last).chain.load(kRelaxed);
  const uint64_t sequence = last + 1;
  Slot& slot = ring.at(sequence);
  slot.op.store(op, kRelaxed);
  slot.bytes.store(bytes, kRelaxed);
  slot.label.store(label.id, kRelaxed);
  slot.step.store(memory_->step.load(kRelaxed), kRelaxed);
  slot.chain.store(
      Mix(chain + Mix(bytes + Mix(memory_->label_hash[label.id] + static_cast<uint64_t>(op) + 1))),
      kRelaxed);
  slot.done_ns.store(0, kRelaxed);
  slot.enqueued_ns.store(UnixNanoseconds(), kRelaxed);
  ring.enqueued.store(sequence, std::memory_order_release);
  return sequence;
}

void FlightRecorder::Done(Channel channel, uint64_t sequence) {
  Ring& ring = memory_->of(channel);
  const int64_t now = UnixNanoseconds();
  for (uint64_t next = ring.done.load(kRelaxed) + 1; next <= sequence; ++next) {
    ring.at(next).done_ns.store(now, kRelaxed);
  }
  ring.done.store(sequence, std::memory_order_release);
}

void FlightRecorder::SetVerdict(std::string_view verdict) {
  verdict = verdict.substr(0, sizeof(memory_->verdict) - 1);
  std::memcpy(memory_->verdict, verdict.data(), verdict.size());
}

ChannelState FlightRecorder::State(Channel channel) const {
  const Ring& ring = memory_->of(channel);
  ChannelState state;
  // `done` is read before `enqueued`, so that `done` is never greater than `enqueued`.
  state.done = ring.done.load(std::memory_order_acquire);
  state.enqueued = ring.enqueued.load(std::memory_order_acquire);
  state.mark = state.enqueued / kMarkEvery * kMarkEvery;
  if (state.mark > 0) state.mark_chain = ring.at(state.mark).chain.load(kRelaxed);
  return state;
}

Flight FlightRecorder::Around(uint64_t before, uint64_t after) const {
  return memory_->Around(before, after);
}

Flight FlightRecorder::Read(const std::string& path) {
  std::string why;
  const std::string bytes = ReadPlainFile(path, kInFlightFolder, sizeof(Memory), why);
  if (!why.empty()) throw DataError("{}: cannot be read: {}", path, why);
  const auto memory = std::make_unique<Memory>();
  std::memcpy(static_cast<void*>(memory.get()), bytes.data(), bytes.size());
  if (bytes.size() != sizeof(Memory) || std::memcmp(memory->magic, kMagic, sizeof(kMagic)) != 0) {
    throw DataError("{}: no flight record, or one that is cut short", path);
  }
  if (memory->version != kVersion) {
    throw DataError("{}: a flight record of format {} where this program knows {}", path,
                    memory->version, kVersion);
  }
  return memory->Around(kRecords, kRecords);
}

}  // namespace lockstep
