#include "ckpt/snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace lockstep {
namespace {

// Returns whether more than a tenth of the device's memory stays free after `bytes` bytes are allocated for copies.
// Later steps and evaluations may need this memory.
bool HasRoomFor(int64_t bytes, at::Device device) {
  constexpr double kLeftFree = 0.1;
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  // The memory in the cache of LibTorch's allocator does not count as free, because CUDA graphs reserve most of it.
  return static_cast<double>(free) - static_cast<double>(bytes) >
         kLeftFree * static_cast<double>(total);
}

}  // namespace

struct StateSnapshot::Gpu {
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;

  explicit Gpu(at::Device device)
      : stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {
    for (at::Tensor& piece : pieces) {
      piece = at::empty({kPieceBytes}, at::TensorOptions(at::kByte).pinned_memory(true));
    }
  }

  c10::cuda::CUDAStream stream;
  // Events before and after the copies, recorded on the stream on which training runs.
  at::cuda::CUDAEvent begun{cudaEventDefault};
  at::cuda::CUDAEvent taken{cudaEventDefault};
  bool on_device = true;
  std::array<at::Tensor, 2> pieces;
  std::array<at::cuda::CUDAEvent, 2> arrived;
};

StateSnapshot::StateSnapshot(at::Device device) : device_(device) {
  if (device.is_cuda()) gpu_ = std::make_unique<Gpu>(device);
}

StateSnapshot::~StateSnapshot() = default;

at::Tensor StateSnapshot::MemoryLike(const at::Tensor& tensor) {
  const at::TensorOptions options(tensor.scalar_type());
  if (!tensor.is_cuda()) return at::empty(tensor.sizes(), options);
  if (gpu_->on_device) {
    try {
      return at::empty(tensor.sizes(), options.device(tensor.device()));
    } catch (const c10::OutOfMemoryError&) {
      // If one copy does not fit on the device, all copies go to the host, because the next step may need the device's
      // memory.
      gpu_->on_device = false;
      for (NamedTensor& copy : copies_) {
        if (copy.tensor.is_cuda()) copy.tensor = MemoryLike(copy.tensor);
      }
    }
  }
  return at::empty(tensor.sizes(), options.pinned_memory(true));
}

void StateSnapshot::Take(const std::vector<NamedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  const double begin_s = SecondsSinceBoot();
  const bool as_before =
      std::ranges::equal(copies_, tensors, [](const NamedTensor& copy, const NamedTensor& now) {
        return copy.tensor.sizes() == now.tensor.sizes() &&
               copy.tensor.scalar_type() == now.tensor.scalar_type();
      });
  if (!as_before) {
    copies_.clear();
    int64_t device_bytes = 0;
    for (const auto& [name, tensor] : tensors) {
      if (tensor.is_cuda()) device_bytes += static_cast<int64_t>(tensor.nbytes());
    }
    if (gpu_ && gpu_->on_device) gpu_->on_device = HasRoomFor(device_bytes, device_);
    for (const auto& [name, tensor] : tensors) {
      at::Tensor memory = MemoryLike(tensor);
      copies_.push_back({name, std::move(memory)});
    }
  }
  if (gpu_) gpu_->begun.record(c10::cuda::getCurrentCUDAStream(device_.index()));
  // Contiguous tensors on the device are copied together, by a few kernels.
  std::vector<at::Tensor> targets, sources;
  for (size_t i = 0; i < tensors.size(); ++i) {
    copies_[i].name = tensors[i].name;
    const at::Tensor source = tensors[i].tensor.detach();
    const at::Tensor& target = copies_[i].tensor;
    if (source.is_cuda() && target.is_cuda() && source.is_contiguous()) {
      targets.push_back(target);
      sources.push_back(source);
    } else {
      target.copy_(source, /*non_blocking=*/true);
    }
  }
  if (!targets.empty()) at::_foreach_copy_(targets, sources);
  if (gpu_) gpu_->taken.record(c10::cuda::getCurrentCUDAStream(device_.index()));
  host_s_ = SecondsSinceBoot() - begin_s;
}

double StateSnapshot::seconds() const {
  if (!gpu_) return host_s_;
  gpu_->taken.synchronize();
  return gpu_->begun.elapsed_time(gpu_->taken) / 1e3;
}

bool StateSnapshot::holds_device_memory() const {
  return gpu_ && gpu_->on_device && !copies_.empty();
}

void StateSnapshot::LeaveDeviceMemory() {
  if (!holds_device_memory()) return;
  gpu_->on_device = false;
  copies_.clear();
}

void StateSnapshot::Append(const at::Tensor& tensor, const AppendBytes& append) {
  if (!tensor.is_cuda()) {
    if (gpu_) gpu_->taken.synchronize();
    append({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
    return;
  }
  const c10::cuda::CUDAStreamGuard on(gpu_->stream);
  gpu_->taken.block(gpu_->stream);
  const at::Tensor bytes = tensor.view(-1).view(at::kByte);
  const auto size = bytes.numel();
  const auto piece_of = [&](int64_t index) { return gpu_->pieces[index % 2]; };
  const auto length_of = [&](int64_t index) {
    return std::min(Gpu::kPieceBytes, size - index * Gpu::kPieceBytes);
  };
  const auto fetch = [&](int64_t index) {
    const int64_t length = length_of(index);
    piece_of(index)
        .narrow(0, 0, length)
        .copy_(bytes.narrow(0, index * Gpu::kPieceBytes, length), /*non_blocking=*/true);
    gpu_->arrived[index % 2].record(gpu_->stream);
  };
  const int64_t count = (size + Gpu::kPieceBytes - 1) / Gpu::kPieceBytes;
  if (count > 0) fetch(0);
  for (int64_t i = 0; i < count; ++i) {
    if (i + 1 < count) fetch(i + 1);
    gpu_->arrived[i % 2].synchronize();
    append({static_cast<const std::byte*>(piece_of(i).const_data_ptr()),
            static_cast<size_t>(length_of(i))});
  }
}

}  // namespace lockstep
