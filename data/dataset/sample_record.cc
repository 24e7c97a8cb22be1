#include "data/dataset/sample_record.h"

#include <algorithm>
#include <utility>

#include "base/files/xxh3.h"
#include "base/in_threads.h"

namespace lockstep {
ChangedSample::ChangedSample(const std::string& name)
    : Error(ExitStatus::kData,
            fmt::format("{}: its content is not what the run has read there before: put it back, "
                        "or begin anew with --fresh (init_from takes a run's weights)",
                        name)) {}

SampleRecord::SampleRecord(Options options)
    : options_(std::move(options)), hashes_(options_.samples) {}

uint32_t SampleRecord::HashOf(std::span<const std::byte> bytes) {
  const uint64_t hash = Xxh3Of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return std::max<uint32_t>(1, static_cast<uint32_t>(hash >> 33));
}

void SampleRecord::Check(int64_t i, uint32_t hash) const {
  const uint32_t known = hashes_[i].load(std::memory_order_relaxed);
  if (known != 0 && known != hash) throw ChangedSample(options_.name_of(i));
}

void SampleRecord::Keep(int64_t i, uint32_t hash) {
  if (hashes_[i].load(std::memory_order_relaxed) != 0) return;
  hashes_[i].store(hash, std::memory_order_relaxed);
  has_news_.store(true, std::memory_order_relaxed);
}

bool SampleRecord::TakeNews() { return has_news_.exchange(false); }

std::vector<uint32_t> SampleRecord::hashes() const {
  std::vector<uint32_t> copy(options_.samples);
  for (int64_t i = 0; i < options_.samples; ++i) {
    copy[i] = hashes_[i].load(std::memory_order_relaxed);
  }
  return copy;
}

void SampleRecord::Restore(std::span<const uint32_t> hashes) {
  for (int64_t i = 0; i < options_.samples; ++i) {
    if (hashes[i] != 0) hashes_[i].store(hashes[i], std::memory_order_relaxed);
  }
}

void SampleRecord::VerifyChanged(int64_t time_ns, int rank, int ranks) const {
  std::vector<int64_t> known;
  options_.changed_since(time_ns, [&](int64_t i) {
    if (std::ssize(known) == options_.most_read || i % ranks != rank) return;
    if (hashes_[i].load(std::memory_order_relaxed) != 0) known.push_back(i);
  });
  InThreads(ReadingThreads(), std::ssize(known),
            [&](int64_t i) { Check(known[i], options_.read(known[i])); });
}

}  // namespace lockstep
