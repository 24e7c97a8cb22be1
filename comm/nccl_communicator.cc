#include "comm/nccl_communicator.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "comm/check_tensor.h"

namespace lockstep {
namespace {

void Check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw PeerError("{} failed: {} (NCCL_DEBUG=INFO tells more)", call, ncclGetErrorString(status));
}

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
      return ncclUint8;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    default:
      throw BugError("NCCL collective on a tensor of {}", c10::toString(tensor.scalar_type()));
  }
}

// Checks that the NCCL library that is loaded has the version that Lockstep and LibTorch were built for.
void CheckVersion() {
  int loaded = 0;
  Check(ncclGetVersion(&loaded), "ncclGetVersion");
  if (loaded == NCCL_VERSION_CODE) return;
  throw UsageError("NCCL {} is loaded where {} was built for: unset LD_PRELOAD and LD_LIBRARY_PATH",
                   loaded, NCCL_VERSION_CODE);
}

// A pool of reusable CUDA events. Each event holds a reference to the pool, so the pool outlives all its events.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  using Event = std::shared_ptr<at::cuda::CUDAEvent>;

  Event Take() {
    std::unique_ptr<at::cuda::CUDAEvent> event;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        event = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!event) event = std::make_unique<at::cuda::CUDAEvent>();
    return {event.release(), [pool = shared_from_this()](at::cuda::CUDAEvent* used) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.emplace_back(used);
            }};
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<at::cuda::CUDAEvent>> free_;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(at::Device device, Communicator& bootstrap, FlightRecorder& recorder)
      : device_(device),
        recorder_(recorder),
        rank_(bootstrap.rank()),
        world_size_(bootstrap.world_size()),
        stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {
    CheckVersion();
    ncclUniqueId id{};
    if (rank_ == 0) Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    at::Tensor bytes = at::empty({sizeof(id)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &id, sizeof(id));
    bootstrap.Broadcast(bytes, 0, bootstrap.MakeLabel("NCCL's id")).Wait();
    std::memcpy(&id, bytes.const_data_ptr(), sizeof(id));

    const c10::cuda::CUDAGuard guard(device_);
    Check(ncclCommInitRank(&communicator_, world_size_, id, rank_), "ncclCommInitRank");
  }

  // If the run had no error, no operation is running when the ranks destroy their communicators. If it had an error,
  // the process ends without running destructors.
  ~NcclCommunicator() override { ncclCommDestroy(communicator_); }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  Label MakeLabel(std::string_view text) override { return recorder_.MakeLabel(text); }

  Work AllReduceSum(at::Tensor tensor, Label label) override {
    CheckSendable(tensor, at::kCUDA);
    const ncclDataType_t type = TypeOf(tensor);
    return Enqueue(Op::kAllReduce, label, {tensor}, [&](cudaStream_t stream) {
      Check(ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.numel(), type,
                          ncclSum, communicator_, stream),
            "ncclAllReduce");
    });
  }

  Work Broadcast(at::Tensor tensor, int root, Label label) override {
    CheckSendable(tensor, at::kCUDA);
    // The bytes are copied as they are, so tensors of any dtype can be broadcast.
    return Enqueue(Op::kBroadcast, label, {tensor}, [&](cudaStream_t stream) {
      Check(ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.nbytes(),
                          ncclUint8, root, communicator_, stream),
            "ncclBroadcast");
    });
  }

  Work AllGather(at::Tensor output, at::Tensor input, Label label) override {
    CheckParts(output, input, world_size_, at::kCUDA);
    const ncclDataType_t type = TypeOf(input);
    return Enqueue(Op::kAllGather, label, {output, input}, [&](cudaStream_t stream) {
      Check(ncclAllGather(input.const_data_ptr(), output.mutable_data_ptr(), input.numel(), type,
                          communicator_, stream),
            "ncclAllGather");
    });
  }

  Work ReduceScatterSum(at::Tensor output, at::Tensor input, Label label) override {
    CheckParts(input, output, world_size_, at::kCUDA);
    const ncclDataType_t type = TypeOf(input);
    return Enqueue(Op::kReduceScatter, label, {input, output}, [&](cudaStream_t stream) {
      Check(ncclReduceScatter(input.const_data_ptr(), output.mutable_data_ptr(), output.numel(),
                              type, ncclSum, communicator_, stream),
            "ncclReduceScatter");
    });
  }

  void Barrier(Label label) override {
    AllReduceSum(at::zeros({1}, at::TensorOptions(device_)), label).Wait();
    at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  }

  at::Tensor Allocate(int64_t elements, at::ScalarType dtype) override {
    constexpr size_t kSymmetricBytes = size_t{16} << 20;
    const at::TensorOptions options = at::TensorOptions(device_).dtype(dtype);
    const size_t bytes = elements * c10::elementSize(dtype);
    if (bytes == 0 || bytes > kSymmetricBytes) return at::zeros({elements}, options);

    const c10::cuda::CUDAGuard guard(device_);
    void* memory = nullptr;
    Check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
    ncclWindow_t window = nullptr;
    Check(ncclCommWindowRegister(communicator_, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
    const auto free = [this, window](void* address) {
      // Work that still runs on the device may use the memory, so the memory can be freed only after that work.
      cudaDeviceSynchronize();
      if (window != nullptr) ncclCommWindowDeregister(communicator_, window);
      ncclMemFree(address);
    };
    return at::from_blob(memory, {elements}, free, options).zero_();
  }

  void Replay(const std::function<void()>& launch, Label label) override {
    const c10::cuda::CUDAGuard guard(device_);
    const uint64_t sequence = recorder_.Enqueued(Channel::kNccl, Op::kReplay, 0, label);
    launch();
    EventPool::Event after = events_->Take();
    after->record(at::cuda::getCurrentCUDAStream(device_.index()));
    Watch({.sequence = sequence, .after = std::move(after)});
  }

  void Poll() override {
    ncclResult_t status = ncclSuccess;
    Check(ncclCommGetAsyncError(communicator_, &status), "ncclCommGetAsyncError");
    Check(status, "a NCCL collective");
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    // Without the relaxed capture mode, cudaEventQuery() would invalidate a capture of a CUDA graph on another thread.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    while (!under_way_.empty() && under_way_.front().after->query()) ForgetOldest();
  }

 private:
  struct UnderWay {
    uint64_t sequence;
    EventPool::Event after;
  };

  template <typename Launch>
  Work Enqueue(Op op, Label label, std::vector<at::Tensor> tensors, const Launch& launch) {
    const c10::cuda::CUDAGuard guard(device_);
    const at::cuda::CUDAStream caller = at::cuda::getCurrentCUDAStream(device_.index());
    const bool captured =
        at::cuda::currentStreamCaptureStatusMayInitCtx() != at::cuda::CaptureStatus::None;
    const EventPool::Event before = events_->Take();
    before->record(caller);
    before->block(stream_);
    const uint64_t sequence =
        captured ? 0 : recorder_.Enqueued(Channel::kNccl, op, tensors.front().nbytes(), label);
    launch(stream_.stream());
    EventPool::Event after = events_->Take();
    after->record(stream_);
    if (!captured) Watch({.sequence = sequence, .after = after});
    return Work([after = std::move(after), tensors = std::move(tensors), device = device_] {
      after->block(at::cuda::getCurrentCUDAStream(device.index()));
    });
  }

  void Watch(UnderWay operation) {
    // If nobody calls Poll() (in a test or a benchmark), finished operations must not accumulate in under_way_.
    constexpr size_t kMany = 64;
    const std::lock_guard lock(mutex_);
    if (under_way_.size() >= kMany && under_way_.front().after->query()) ForgetOldest();
    under_way_.push_back(std::move(operation));
  }

  void ForgetOldest() {
    recorder_.Done(Channel::kNccl, under_way_.front().sequence);
    under_way_.pop_front();
  }

  at::Device device_;
  FlightRecorder& recorder_;
  int rank_;
  int world_size_;
  at::cuda::CUDAStream stream_;
  ncclComm_t communicator_ = nullptr;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();

  std::mutex mutex_;
  std::deque<UnderWay> under_way_;  // in the order of the calls
};

}  // namespace

std::unique_ptr<Communicator> MakeNccl(at::Device device, Communicator& bootstrap,
                                       FlightRecorder& recorder) {
  return std::make_unique<NcclCommunicator>(device, bootstrap, recorder);
}

}  // namespace lockstep
