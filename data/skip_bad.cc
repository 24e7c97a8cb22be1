#include "data/skip_bad.h"

#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "data/sample_random.h"

namespace lockstep {

struct SkipBad::Reports {
  int64_t limit;
  uint64_t seed;
  std::mutex mutex;
  std::set<int64_t> bad;
  std::vector<std::string> untold;

  void Add(int64_t index, const Error& error) {
    const std::lock_guard lock(mutex);
    const bool is_new = bad.insert(index).second;
    if (static_cast<int64_t>(bad.size()) <= limit) {
      if (is_new) untold.push_back(fmt::format("{}; another stands for it", error.what()));
      return;
    }
    throw DataError("{} samples cannot be read, more than data.bad_samples.limit; the last: {}",
                    bad.size(), error.what());
  }
};

SkipBad::SkipBad(std::shared_ptr<const Dataset> whole, int64_t limit, uint64_t seed)
    : whole_(std::move(whole)), reports_(std::make_shared<Reports>()) {
  reports_->limit = limit;
  reports_->seed = seed;
}

SkipBad::SkipBad(std::shared_ptr<const Dataset> whole, std::shared_ptr<Reports> reports)
    : whole_(std::move(whole)), reports_(std::move(reports)) {}

SkipBad::~SkipBad() = default;

void SkipBad::Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const {
  // In a data set where more than a few are good, one of so many is.
  constexpr int kAttempts = 100;
  SampleRandom random(reports_->seed, epoch, index);
  int64_t candidate = index;
  for (int attempt = 1;; ++attempt) {
    try {
      return whole_->Read(candidate, epoch, input, target);
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kData || attempt == kAttempts) throw;
      reports_->Add(candidate, error);
    }
    candidate = static_cast<int64_t>(random.Uniform() * static_cast<double>(size()));
  }
}

std::shared_ptr<const Dataset> SkipBad::Plain() const {
  const std::shared_ptr<const Dataset> plain = whole_->Plain();
  if (!plain) return nullptr;
  return std::shared_ptr<const Dataset>(new SkipBad(plain, reports_));
}

std::vector<std::string> SkipBad::TakeReports() const {
  const std::lock_guard lock(reports_->mutex);
  return std::exchange(reports_->untold, {});
}

}  // namespace lockstep
