#include "data/dataset/sample_record.h"

#include <algorithm>
#include <utility>

#include "base/files/readable_file.h"
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

std::vector<int64_t> SampleRecord::Differing(std::span<const uint32_t> hashes) const {
  std::vector<int64_t> differing;
  for (int64_t i = 0; i < options_.samples; ++i) {
    const uint32_t known = hashes_[i].load(std::memory_order_relaxed);
    if (known != 0 && hashes[i] != 0 && known != hashes[i]) differing.push_back(i);
  }
  return differing;
}

void SampleRecord::VerifyChanged(int64_t time_ns, int rank, int ranks) const {
  std::vector<int64_t> known;
  for (int64_t i = rank; i < options_.samples; i += ranks) {
    if (hashes_[i].load(std::memory_order_relaxed) != 0) known.push_back(i);
  }
  if (known.empty()) return;
  std::vector<int64_t> changed = options_.changed_since(time_ns, std::move(known));
  changed.resize(std::min(std::ssize(changed), options_.most_read));
  InThreads(ReadingThreads(), std::ssize(changed),
            [&](int64_t i) { Check(changed[i], options_.read(changed[i])); });
}

std::vector<int64_t> ChangedFiles(int64_t time_ns, const std::vector<int64_t>& samples,
                                  const std::function<std::string(int64_t i)>& file_of) {
  constexpr int64_t kMostAsked = 20'000;
  if (std::ssize(samples) > kMostAsked) return {};
  std::vector<char> is_changed(samples.size());
  InThreads(ReadingThreads(), std::ssize(samples),
            [&](int64_t i) { is_changed[i] = ChangedSince(file_of(samples[i]), time_ns) ? 1 : 0; });
  std::vector<int64_t> changed;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (is_changed[i] != 0) changed.push_back(samples[i]);
  }
  return changed;
}

}  // namespace lockstep
