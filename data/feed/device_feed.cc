#include "data/feed/device_feed.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "base/tensor/range.h"

namespace lockstep {

struct DeviceFeed::Gpu {
  using Event = std::shared_ptr<at::cuda::CUDAEvent>;

  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
    MicroBatch origin;
    Event copied;
    at::cuda::CUDAEvent consumed;
  };

  // Records an event with a time stamp in `stream`, and returns the event.
  static Event Record(const at::cuda::CUDAStream& stream) {
    auto event = std::make_shared<at::cuda::CUDAEvent>(cudaEventDefault);
    event->record(stream);
    return event;
  }

  explicit Gpu(at::Device device)
      : device(device),
        stream(at::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  at::Device device;
  at::cuda::CUDAStream stream;
  std::array<Slot, kSlots> slots;
  // For each copied micro-batch, in order: the event at the end of the work on the micro-batch before it, and the event
  // at the end of its own copy.
  std::deque<std::pair<Event, Event>> gaps;
  double waited_s = 0;
  int64_t queued = 0;   // the number of pairs added to `gaps` so far
  int64_t counted = 0;  // the number of pairs of `gaps` that waited_s includes
  // Element n % kRemembered is the value of waited_s when it included n pairs of `gaps`.
  std::vector<double> waited_until = std::vector<double>(kRemembered);
  int in_use = -1;
  int next = 0;
  bool prefetched = false;  // whether the copy into slots[next] was queued
};

DeviceFeed::DeviceFeed(Loader& loader, const SampleSpec& spec, int64_t max_micro_batch,
                       at::Device device)
    : loader_(loader) {
  if (!device.is_cuda()) return;
  gpu_ = std::make_unique<Gpu>(device);
  for (Gpu::Slot& slot : gpu_->slots) {
    slot.input = EmptyInputs(spec, max_micro_batch, device);
    slot.target = EmptyTargets(spec, max_micro_batch, device);
    slot.draws = EmptyDraws(loader.augment(), max_micro_batch, device);
    // The memory may have belonged to another tensor, and work on that tensor may still be queued. The first copy into
    // the slot waits for this event, and thereby for that work.
    slot.consumed.record(at::cuda::getCurrentCUDAStream(device.index()));
  }
}

// Waits for the copies that are under way, because they write to memory that this destructor frees.
DeviceFeed::~DeviceFeed() {
  // The status is ignored: after an error of the device there is no copy to wait for, and a destructor must not throw.
  if (gpu_) static_cast<void>(cudaStreamSynchronize(gpu_->stream.stream()));
}

DeviceBatch DeviceFeed::Next() {
  if (!gpu_) {
    if (std::exchange(lent_, true)) loader_.Release();
    HostBatch batch = NextOfLoader();
    return {std::move(batch.origin), batch.input, batch.target, batch.draws};
  }
  const at::cuda::CUDAStream current = at::cuda::getCurrentCUDAStream(gpu_->device.index());
  if (gpu_->in_use >= 0) gpu_->slots[gpu_->in_use].consumed.record(current);
  Prefetch();
  gpu_->prefetched = false;
  gpu_->in_use = std::exchange(gpu_->next, 1 - gpu_->next);
  Gpu::Slot& slot = gpu_->slots[gpu_->in_use];
  slot.copied->block(current);
  const auto count = static_cast<int64_t>(slot.origin.indices.size());
  return {std::move(slot.origin), slot.input.narrow(0, 0, count), slot.target.narrow(0, 0, count),
          slot.draws.defined() ? slot.draws.narrow(0, 0, count) : at::Tensor()};
}

HostBatch DeviceFeed::NextOfLoader() {
  const Range range("read", Range::Of::kStep);
  return loader_.Next();
}

double DeviceFeed::waited_s() {
  if (!gpu_) return loader_.times().waiting;
  CountGaps();
  return gpu_->waited_s;
}

std::vector<at::Tensor> DeviceFeed::DeviceMemories() const {
  std::vector<at::Tensor> memories;
  if (!gpu_) return memories;
  for (const Gpu::Slot& slot : gpu_->slots) {
    memories.insert(memories.end(), {slot.input, slot.target, slot.draws});
  }
  return memories;
}

int64_t DeviceFeed::queued() const { return gpu_ ? gpu_->queued : 0; }

double DeviceFeed::waited_s(int64_t batches) {
  if (!gpu_) return waited_s();
  CountGaps();
  return batches < gpu_->counted ? WaitedUntil(batches) : gpu_->waited_s;
}

double& DeviceFeed::WaitedUntil(int64_t batches) {
  return gpu_->waited_until[static_cast<size_t>(batches % kRemembered)];
}

void DeviceFeed::CountGaps() {
  std::deque<std::pair<Gpu::Event, Gpu::Event>>& gaps = gpu_->gaps;
  for (; !gaps.empty() && gaps.front().first->query() && gaps.front().second->query();
       gaps.pop_front()) {
    const auto [done, copied] = gaps.front();
    gpu_->waited_s += 1e-3 * std::max(0.0F, done->elapsed_time(*copied));
    WaitedUntil(++gpu_->counted) = gpu_->waited_s;
  }
}

void DeviceFeed::Prefetch() {
  if (!gpu_ || std::exchange(gpu_->prefetched, true)) return;
  // The event is recorded before the wait for the loader, because the device may run out of work during this wait, and
  // waited_s must include the time from then on.
  const Gpu::Event done = Gpu::Record(at::cuda::getCurrentCUDAStream(gpu_->device.index()));
  HostBatch batch = NextOfLoader();
  Gpu::Slot& slot = gpu_->slots[gpu_->next];
  {
    const Range range("copy", Range::Of::kStep);
    const c10::cuda::CUDAStreamGuard guard(gpu_->stream);
    slot.consumed.block(gpu_->stream);
    slot.input.narrow(0, 0, batch.input.size(0)).copy_(batch.input, /*non_blocking=*/true);
    slot.target.narrow(0, 0, batch.target.size(0)).copy_(batch.target, /*non_blocking=*/true);
    if (slot.draws.defined()) {
      slot.draws.narrow(0, 0, batch.draws.size(0)).copy_(batch.draws, /*non_blocking=*/true);
    }
    slot.copied = Gpu::Record(gpu_->stream);
  }
  if (gpu_->in_use >= 0) {
    gpu_->gaps.emplace_back(done, slot.copied);
    ++gpu_->queued;
  }
  CountGaps();
  slot.origin = std::move(batch.origin);
  loader_.Release([copied = slot.copied] { copied->synchronize(); });
}

}  // namespace lockstep
