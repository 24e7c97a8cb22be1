#include "comm/nccl_communicator.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <cstring>

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

// LibTorch brings its own NCCL; the process must not hold a second one of another version.
void CheckVersion() {
  int loaded = 0;
  Check(ncclGetVersion(&loaded), "ncclGetVersion");
  if (loaded == NCCL_VERSION_CODE) return;
  throw UsageError("NCCL {} is loaded where {} was built for: unset LD_PRELOAD and LD_LIBRARY_PATH",
                   loaded, NCCL_VERSION_CODE);
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(at::Device device, Communicator& bootstrap)
      : device_(device),
        rank_(bootstrap.rank()),
        world_size_(bootstrap.world_size()),
        stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {
    CheckVersion();
    ncclUniqueId id{};
    if (rank_ == 0) Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    at::Tensor bytes = at::empty({sizeof(id)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &id, sizeof(id));
    bootstrap.Broadcast(bytes, 0).Wait();
    std::memcpy(&id, bytes.const_data_ptr(), sizeof(id));

    const c10::cuda::CUDAGuard guard(device_);
    Check(ncclCommInitRank(&communicator_, world_size_, id, rank_), "ncclCommInitRank");
  }

  // Without an error every rank comes here with nothing under way. With one, the process leaves
  // without destructors.
  ~NcclCommunicator() override { ncclCommDestroy(communicator_); }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  Work AllReduceSum(at::Tensor tensor) override {
    CheckSendable(tensor, at::kCUDA);
    const ncclDataType_t type = TypeOf(tensor);
    return Enqueue(
        [&](cudaStream_t stream) {
          Check(ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.numel(),
                              type, ncclSum, communicator_, stream),
                "ncclAllReduce");
        },
        {tensor});
  }

  Work Broadcast(at::Tensor tensor, int root) override {
    CheckSendable(tensor, at::kCUDA);
    // The bytes are copied as they are, so any dtype will do.
    return Enqueue(
        [&](cudaStream_t stream) {
          Check(ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.nbytes(),
                              ncclUint8, root, communicator_, stream),
                "ncclBroadcast");
        },
        {tensor});
  }

  Work AllGather(at::Tensor output, at::Tensor input) override {
    CheckParts(output, input, world_size_, at::kCUDA);
    const ncclDataType_t type = TypeOf(input);
    return Enqueue(
        [&](cudaStream_t stream) {
          Check(ncclAllGather(input.const_data_ptr(), output.mutable_data_ptr(), input.numel(),
                              type, communicator_, stream),
                "ncclAllGather");
        },
        {output, input});
  }

  Work ReduceScatterSum(at::Tensor output, at::Tensor input) override {
    CheckParts(input, output, world_size_, at::kCUDA);
    const ncclDataType_t type = TypeOf(input);
    return Enqueue(
        [&](cudaStream_t stream) {
          Check(ncclReduceScatter(input.const_data_ptr(), output.mutable_data_ptr(), output.numel(),
                                  type, ncclSum, communicator_, stream),
                "ncclReduceScatter");
        },
        {output, input});
  }

  void Barrier() override {
    AllReduceSum(at::zeros({1}, at::TensorOptions(device_))).Wait();
    at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  }

  void CheckHealth() override {
    ncclResult_t status = ncclSuccess;
    Check(ncclCommGetAsyncError(communicator_, &status), "ncclCommGetAsyncError");
    Check(status, "a NCCL collective");
  }

 private:
  template <typename Launch>
  Work Enqueue(const Launch& launch, std::vector<at::Tensor> tensors) {
    const c10::cuda::CUDAGuard guard(device_);
    at::cuda::CUDAEvent before;
    before.record(at::cuda::getCurrentCUDAStream(device_.index()));
    before.block(stream_);
    launch(stream_.stream());
    auto after = std::make_shared<at::cuda::CUDAEvent>();
    after->record(stream_);
    return Work([after, tensors = std::move(tensors), device = device_] {
      after->block(at::cuda::getCurrentCUDAStream(device.index()));
    });
  }

  at::Device device_;
  int rank_;
  int world_size_;
  at::cuda::CUDAStream stream_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> MakeNccl(at::Device device, Communicator& bootstrap) {
  return std::make_unique<NcclCommunicator>(device, bootstrap);
}

}  // namespace lockstep
