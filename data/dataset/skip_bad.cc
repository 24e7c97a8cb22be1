#include "data/dataset/skip_bad.h"

#include <utility>

#include "data/dataset/sample_random.h"
#include "data/dataset/sample_record.h"

namespace lockstep {

SkipBad::SkipBad(std::shared_ptr<const Dataset> whole, int64_t limit, uint64_t seed)
    : WrappedDataset(*whole), owned_(std::move(whole)), limit_(limit), seed_(seed) {}

void SkipBad::Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const {
  // Read() tries the sample itself and up to 99 random samples. Unless nearly all samples of the data set are bad, one
  // of these attempts almost certainly finds a good one.
  constexpr int kAttempts = 100;
  SampleRandom random(seed_, epoch, index);
  int64_t candidate = index;
  for (int attempt = 1;; ++attempt) {
    try {
      return whole_.Read(candidate, epoch, input, target);
    } catch (const ChangedSample&) {
      throw;
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kData || attempt == kAttempts) throw;
      Report(candidate, error);
    }
    candidate = static_cast<int64_t>(random.Uniform() * static_cast<double>(size()));
  }
}

void SkipBad::ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                       std::byte* target) const {
  try {
    whole_.ReadSome(indices, epoch, input, target);
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kData) throw;
    Dataset::ReadSome(indices, epoch, input, target);
  }
}

void SkipBad::Report(int64_t index, const Error& error) const {
  const std::lock_guard lock(mutex_);
  const bool is_new = bad_.insert(index).second;
  if (static_cast<int64_t>(bad_.size()) > limit_) {
    throw DataError("{} samples cannot be read, more than data.bad_samples.limit; the last: {}",
                    bad_.size(), error.what());
  }
  if (is_new) untold_.push_back(fmt::format("{}; another stands for it", error.what()));
}

std::vector<std::string> SkipBad::TakeReports() const {
  const std::lock_guard lock(mutex_);
  return std::exchange(untold_, {});
}

}  // namespace lockstep
