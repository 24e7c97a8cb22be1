#include "data/device_feed.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <array>
#include <utility>

namespace lockstep {

struct DeviceFeed::Gpu {
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    MicroBatch origin;
    std::shared_ptr<at::cuda::CUDAEvent> copied;
    at::cuda::CUDAEvent consumed;
  };

  explicit Gpu(at::Device device)
      : device(device),
        stream(at::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  at::Device device;
  at::cuda::CUDAStream stream;
  std::array<Slot, 2> slots;
  int in_use = -1;
  int next = 0;
  bool prefetched = false;  // slots[next] is filled or being filled
};

DeviceFeed::DeviceFeed(Loader& loader, const SampleSpec& spec, int64_t max_micro_batch,
                       at::Device device)
    : loader_(loader) {
  if (!device.is_cuda()) return;
  gpu_ = std::make_unique<Gpu>(device);
  const at::TensorOptions memory(device);
  for (Gpu::Slot& slot : gpu_->slots) {
    slot.input = at::empty(BatchShape(max_micro_batch, spec.shape), memory.dtype(spec.dtype));
    slot.target = at::empty(BatchShape(max_micro_batch, spec.target_shape()),
                            memory.dtype(spec.target_dtype()));
    // The memory may have been another tensor's, whose work is still queued.
    slot.consumed.record(at::cuda::getCurrentCUDAStream(device.index()));
  }
}

// Copies that are under way write to memory that is then somebody else's.
DeviceFeed::~DeviceFeed() {
  if (gpu_) gpu_->stream.synchronize();
}

DeviceBatch DeviceFeed::Next() {
  if (!gpu_) {
    if (std::exchange(lent_, true)) loader_.Release();
    HostBatch batch = loader_.Next();
    return {std::move(batch.origin), batch.input, batch.target};
  }
  const at::cuda::CUDAStream current = at::cuda::getCurrentCUDAStream(gpu_->device.index());
  if (gpu_->in_use >= 0) gpu_->slots[gpu_->in_use].consumed.record(current);
  Prefetch();
  gpu_->prefetched = false;
  gpu_->in_use = std::exchange(gpu_->next, 1 - gpu_->next);
  Gpu::Slot& slot = gpu_->slots[gpu_->in_use];
  slot.copied->block(current);
  const auto count = static_cast<int64_t>(slot.origin.indices.size());
  return {std::move(slot.origin), slot.input.narrow(0, 0, count), slot.target.narrow(0, 0, count)};
}

void DeviceFeed::Prefetch() {
  if (!gpu_ || std::exchange(gpu_->prefetched, true)) return;
  HostBatch batch = loader_.Next();
  Gpu::Slot& slot = gpu_->slots[gpu_->next];
  {
    const c10::cuda::CUDAStreamGuard guard(gpu_->stream);
    slot.consumed.block(gpu_->stream);
    slot.input.narrow(0, 0, batch.input.size(0)).copy_(batch.input, /*non_blocking=*/true);
    slot.target.narrow(0, 0, batch.target.size(0)).copy_(batch.target, /*non_blocking=*/true);
    slot.copied = std::make_shared<at::cuda::CUDAEvent>();
    slot.copied->record(gpu_->stream);
  }
  slot.origin = std::move(batch.origin);
  loader_.Release([copied = slot.copied] { copied->synchronize(); });
}

}  // namespace lockstep
