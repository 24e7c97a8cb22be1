#include "data/feed/loader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/ceil_divide.h"
#include "base/clock.h"

namespace lockstep {

LoaderTimes LoaderTimes::operator+(const LoaderTimes& other) const {
  return {.available = available + other.available,
          .reading = reading + other.reading,
          .computing = computing + other.computing,
          .waiting = waiting + other.waiting};
}

LoaderTimes LoaderTimes::operator-(const LoaderTimes& other) const {
  return {.available = available - other.available,
          .reading = reading - other.reading,
          .computing = computing - other.computing,
          .waiting = waiting - other.waiting};
}

std::string LimitOf(const LoaderTimes& loader, const ReadTimes& reads) {
  if (loader.available == 0) {
    return "the training thread, which reads the samples itself: set loader.threads to 1 or more";
  }
  // If the threads spend a smaller share of their time than this in reading, they are not the bottleneck.
  constexpr double kBusy = 0.8;
  if (loader.reading < kBusy * loader.available) {
    return "what takes the batches (copy, normalisation or the model): the loader's threads idle "
           "for a part of the time, and more of them would not help";
  }
  if (reads.gpu > loader.reading / 2) {
    return "the GPU, which decodes: set data.images.decode: CPU where cores are idle";
  }
  if (reads.files > loader.reading / 2) {
    return "the disk, or a page cache that is not warm yet: keep the files on a faster disk, or "
           "make them smaller";
  }
  if (reads.decoding > loader.reading / 2) {
    return "cores, which decode: give each rank more of them and loader.threads, or store the "
           "images smaller";
  }
  return "cores, which read samples: give each rank more of them and loader.threads";
}

Loader::Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options)
    : dataset_(dataset),
      sampler_(sampler),
      augment_(options.augment),
      at_once_(std::max<int64_t>(
          dataset.samples_at_once(),
          kBytesAtOnce / (dataset.spec().bytes() + dataset.spec().target_bytes()))),
      slots_(options.slots),
      working_(options.threads),
      taken_at_(SecondsSinceBoot()),
      tuned_at_(taken_at_) {
  const at::TensorOptions memory = at::TensorOptions().pinned_memory(options.pinned);
  for (Slot& slot : slots_) {
    slot.input = EmptyInputs(dataset.spec(), sampler.max_micro_batch(), memory);
    slot.target = EmptyTargets(dataset.spec(), sampler.max_micro_batch(), memory);
    slot.draws = EmptyDraws(augment_, sampler.max_micro_batch(), memory);
  }
  StartThreads(options);
}

Loader::~Loader() { StopThreads(); }

void Loader::StartThreads(const LoaderOptions& options) {
  const int most = options.threads > 0 ? std::max(options.threads, options.most_threads) : 0;
  try {
    for (int i = 0; i < most; ++i) threads_.emplace_back([this, i] { Run(i); });
  } catch (const std::exception&) {
    // The system refuses more threads. If at least options.threads threads were started, the tuning chooses among the
    // started ones. Otherwise the exception is passed on.
    if (static_cast<int>(threads_.size()) < options.threads) {
      StopThreads();
      throw;
    }
  }
  const auto started = static_cast<int>(threads_.size());
  if (started > options.threads) tuner_.emplace(options.threads, started);
}

void Loader::StopThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  parked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

HostBatch Loader::Next() {
  const double begin = SecondsSinceBoot();
  Slot& slot = slots_[taken_ % slots_.size()];
  {
    std::unique_lock lock(mutex_);
    if (threads_.empty()) {
      Open(lock);
      while (!slot.ready) ReadSome(slot, lock);
    }
    ready_.wait(lock, [&] { return slot.ready; });
    slot.ready = false;
    ++taken_;
    taken_at_ = SecondsSinceBoot();
    times_.waiting += taken_at_ - begin;
    if (tuner_) Tune();
  }
  if (slot.exception) std::rethrow_exception(std::exchange(slot.exception, nullptr));
  return {std::move(slot.origin), slot.input.narrow(0, 0, slot.count),
          slot.target.narrow(0, 0, slot.count),
          augment_.Any() ? slot.draws.narrow(0, 0, slot.count) : at::Tensor()};
}

void Loader::Release(std::function<void()> until_unused) {
  {
    const std::lock_guard lock(mutex_);
    slots_[released_++ % slots_.size()].until_unused = std::move(until_unused);
  }
  work_.notify_one();
}

LoaderTimes Loader::times() const {
  const std::lock_guard lock(mutex_);
  LoaderTimes times = times_;
  times.available += working_ * (SecondsSinceBoot() - tuned_at_);
  return times;
}

void Loader::Rest() {
  const std::lock_guard lock(mutex_);
  times_.available += working_ * (taken_at_ - tuned_at_);
  BeginWindow(SecondsSinceBoot());
}

int Loader::threads() const {
  const std::lock_guard lock(mutex_);
  return working_;
}

// Adapts the number of threads that take work, if at least kLeast_s seconds and as many micro-batches as there are
// slots have passed since the last tuning.
void Loader::Tune() {
  constexpr double kLeast_s = 0.5;
  const double seconds = taken_at_ - tuned_at_;
  if (seconds < kLeast_s || taken_ - tuned_taken_ < static_cast<int64_t>(slots_.size())) return;
  times_.available += working_ * seconds;
  tuner_->Add({.seconds = seconds,
               .samples = read_samples_ - tuned_samples_,
               .reading_s = times_.reading - tuned_times_.reading,
               .waiting_s = times_.waiting - tuned_times_.waiting});
  working_ = tuner_->threads();
  parked_.notify_all();
  BeginWindow(taken_at_);
}

void Loader::BeginWindow(double now) {
  tuned_at_ = now;
  tuned_times_ = times_;
  tuned_samples_ = read_samples_;
  tuned_taken_ = taken_;
}

bool Loader::CanOpen() const {
  return !opening_ && opened_ < released_ + static_cast<int64_t>(slots_.size());
}

// Takes the next micro-batch from the sampler, and opens a slot for this micro-batch. Releases the lock while it calls
// `until_unused`.
void Loader::Open(std::unique_lock<std::mutex>& lock) {
  Slot& slot = slots_[opened_ % slots_.size()];
  opening_ = true;
  const auto until_unused = std::exchange(slot.until_unused, nullptr);
  try {
    slot.origin = sampler_.Next();
  } catch (...) {  // no memory for the micro-batch's indices
    slot.origin = {};
    slot.exception = std::current_exception();
  }
  lock.unlock();
  try {
    if (until_unused) until_unused();
  } catch (...) {
    slot.exception = std::current_exception();
  }
  lock.lock();
  opening_ = false;
  ++opened_;
  slot.count = static_cast<int64_t>(slot.origin.indices.size());
  slot.handed_out = slot.exception ? slot.count : 0;
  slot.unwritten = slot.count;
  if (slot.handed_out == slot.count) Finish(slot);
}

// Returns the slot that was opened last if it has samples that no thread has taken, and otherwise null. No other slot
// can have such samples.
Loader::Slot* Loader::SlotToFill() {
  if (opened_ == 0) return nullptr;
  Slot& slot = slots_[(opened_ - 1) % slots_.size()];
  return slot.handed_out < slot.count ? &slot : nullptr;
}

void Loader::Finish(Slot& slot) {
  slot.ready = true;
  ready_.notify_one();
}

// Writes the slot's samples [begin, end).
void Loader::ReadSamples(const Slot& slot, int64_t begin, int64_t end) const {
  const SampleSpec& spec = dataset_.spec();
  const auto indices = std::span(slot.origin.indices).subspan(begin, end - begin);
  dataset_.ReadSome(
      indices, slot.origin.epoch,
      static_cast<std::byte*>(slot.input.mutable_data_ptr()) + begin * spec.bytes(),
      static_cast<std::byte*>(slot.target.mutable_data_ptr()) + begin * spec.target_bytes());
  if (!augment_.Any()) return;
  auto* draws = slot.draws.mutable_data_ptr<float>() + begin * kAugmentDraws;
  for (const int64_t index : indices) {
    DrawAugmentation(augment_, {.width = spec.shape[2], .height = spec.shape[1]}, slot.origin.epoch,
                     dataset_.NumberInFiles(index), draws);
    draws += kAugmentDraws;
  }
}

// Reads the next samples of the slot's micro-batch into the slot. Releases the lock while it reads.
void Loader::ReadSome(Slot& slot, std::unique_lock<std::mutex>& lock) {
  const int64_t begin = slot.handed_out;
  const int64_t pieces = CeilDivide(slot.count, at_once_);
  const int64_t end = std::min(begin + CeilDivide(slot.count, pieces), slot.count);
  slot.handed_out = end;
  // If there is more work, this thread wakes another thread.
  if (SlotToFill() != nullptr || CanOpen()) work_.notify_one();
  lock.unlock();

  const double start = SecondsSinceBoot();
  const double computed = ThreadCpuSeconds();
  std::exception_ptr exception;
  try {
    ReadSamples(slot, begin, end);
  } catch (...) {
    exception = std::current_exception();
  }

  const double seconds = SecondsSinceBoot() - start;
  const double computing = ThreadCpuSeconds() - computed;
  lock.lock();
  times_.reading += seconds;
  times_.computing += computing;
  read_samples_ += end - begin;
  if (exception && (!slot.exception || begin < slot.failed)) {
    slot.exception = exception;
    slot.failed = begin;
  }
  slot.unwritten -= end - begin;
  if (slot.unwritten == 0) Finish(slot);
}

void Loader::Run(int number) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (number >= working_) {
      work_.notify_one();  // hands over the work for which this thread was woken
      parked_.wait(lock, [&] { return stopping_ || number < working_; });
    }
    work_.wait(lock, [&] {
      return stopping_ || number >= working_ || SlotToFill() != nullptr || CanOpen();
    });
    if (stopping_) return;
    if (number >= working_) continue;
    if (Slot* slot = SlotToFill()) {
      ReadSome(*slot, lock);
    } else {
      Open(lock);
    }
  }
}

}  // namespace lockstep
