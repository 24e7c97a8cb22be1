#include "data/loader.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace lockstep {

Loader::Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options)
    : dataset_(dataset), sampler_(sampler), slots_(options.slots) {
  const SampleSpec& spec = dataset.spec();
  const at::TensorOptions memory = at::TensorOptions().pinned_memory(options.pinned);
  for (Slot& slot : slots_) {
    slot.input =
        at::empty(BatchShape(sampler.max_micro_batch(), spec.shape), memory.dtype(spec.dtype));
    slot.target = at::empty(BatchShape(sampler.max_micro_batch(), spec.target_shape()),
                            memory.dtype(spec.target_dtype()));
  }
  try {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {  // the system gives no more threads
    StopThreads();
    throw;
  }
}

Loader::~Loader() { StopThreads(); }

void Loader::StopThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

HostBatch Loader::Next() {
  Slot& slot = slots_[taken_ % slots_.size()];
  if (threads_.empty()) {
    slot.origin = sampler_.Next();
    Fill(slot);
  } else {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slot.ready; });
    slot.ready = false;
  }
  ++taken_;
  if (slot.exception) std::rethrow_exception(std::exchange(slot.exception, nullptr));
  const auto count = static_cast<int64_t>(slot.origin.indices.size());
  return {std::move(slot.origin), slot.input.narrow(0, 0, count), slot.target.narrow(0, 0, count)};
}

void Loader::Release(std::function<void()> until_unused) {
  slots_[released_ % slots_.size()].until_unused = std::move(until_unused);
  {
    const std::lock_guard lock(mutex_);
    ++released_;
  }
  changed_.notify_all();
}

void Loader::Fill(Slot& slot) {
  if (slot.until_unused) std::exchange(slot.until_unused, nullptr)();
  auto* input = static_cast<std::byte*>(slot.input.mutable_data_ptr());
  auto* target = static_cast<std::byte*>(slot.target.mutable_data_ptr());
  const int64_t input_bytes = dataset_.spec().bytes();
  const int64_t target_bytes = dataset_.spec().target_bytes();
  for (const int64_t index : slot.origin.indices) {
    dataset_.Read(index, input, target);
    input += input_bytes;
    target += target_bytes;
  }
}

void Loader::Run() {
  std::unique_lock lock(mutex_);
  const auto slots = static_cast<int64_t>(slots_.size());
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || claimed_ < released_ + slots; });
    if (stopping_) return;
    Slot& slot = slots_[claimed_++ % slots];
    slot.origin = sampler_.Next();
    lock.unlock();
    try {
      Fill(slot);
    } catch (...) {
      slot.exception = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    changed_.notify_all();
  }
}

}  // namespace lockstep
