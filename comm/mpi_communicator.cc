#include "comm/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <string>

#include "base/error.h"
#include "comm/check_tensor.h"

namespace lockstep {
namespace {

void Check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  text.resize(length);
  throw PeerError("{} failed: {}", call, text);
}

MPI_Datatype TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
      return MPI_UINT8_T;
    case at::kInt:
      return MPI_INT32_T;
    case at::kLong:
      return MPI_INT64_T;
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    default:
      throw BugError(
          "MPI collective on a tensor of {}: uint8, int32, int64, float32, float64 are known",
          c10::toString(tensor.scalar_type()));
  }
}

// MPI counts are ints: longer tensors go in pieces.
constexpr int64_t kMaxCount = int64_t{1} << 30;

// Calls send(first element, count) for each piece of the `count` elements.
template <typename Send>
void InPieces(int64_t count, const Send& send) {
  for (int64_t first = 0; first < count; first += kMaxCount) {
    send(first, static_cast<int>(std::min(kMaxCount, count - first)));
  }
}

int CountOf(const at::Tensor& part) {
  if (part.numel() > INT_MAX)
    throw BugError("MPI collective in parts of {} elements", part.numel());
  return static_cast<int>(part.numel());
}

}  // namespace

MpiCommunicator::MpiCommunicator() : thread_([this] { Run(); }) {
  try {
    Enqueue([this] {
      int provided = 0;
      Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      if (provided < MPI_THREAD_FUNNELED) {
        throw PeerError("this MPI was built without threads: Lockstep needs MPI_THREAD_FUNNELED");
      }
      Check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
      Check(MPI_Comm_size(MPI_COMM_WORLD, &world_size_), "MPI_Comm_size");
      MPI_Comm machine = MPI_COMM_NULL;
      Check(
          MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
          "MPI_Comm_split_type");
      Check(MPI_Comm_rank(machine, &local_rank_), "MPI_Comm_rank");
      Check(MPI_Comm_size(machine, &local_ranks_), "MPI_Comm_size");
      Check(MPI_Comm_free(&machine), "MPI_Comm_free");
    }).Wait();
  } catch (...) {
    StopThread();
    throw;
  }
}

MpiCommunicator::~MpiCommunicator() { StopThread(); }

void MpiCommunicator::StopThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

Work MpiCommunicator::AllReduceSum(at::Tensor tensor) {
  CheckSendable(tensor, at::kCPU);
  const MPI_Datatype type = TypeOf(tensor);
  return Enqueue([tensor = std::move(tensor), type] {
    auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    InPieces(tensor.numel(), [&](int64_t first, int count) {
      Check(MPI_Allreduce(MPI_IN_PLACE, data + first * tensor.element_size(), count, type, MPI_SUM,
                          MPI_COMM_WORLD),
            "MPI_Allreduce");
    });
  });
}

Work MpiCommunicator::Broadcast(at::Tensor tensor, int root) {
  CheckSendable(tensor, at::kCPU);
  // The bytes are copied as they are, so any dtype will do.
  return Enqueue([tensor = std::move(tensor), root] {
    auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    InPieces(static_cast<int64_t>(tensor.nbytes()), [&](int64_t first, int count) {
      Check(MPI_Bcast(data + first, count, MPI_BYTE, root, MPI_COMM_WORLD), "MPI_Bcast");
    });
  });
}

Work MpiCommunicator::AllGather(at::Tensor output, at::Tensor input) {
  CheckParts(output, input, world_size_, at::kCPU);
  const MPI_Datatype type = TypeOf(input);
  const int count = CountOf(input);
  return Enqueue([output = std::move(output), input = std::move(input), type, count] {
    Check(MPI_Allgather(input.const_data_ptr(), count, type, output.mutable_data_ptr(), count, type,
                        MPI_COMM_WORLD),
          "MPI_Allgather");
  });
}

Work MpiCommunicator::ReduceScatterSum(at::Tensor output, at::Tensor input) {
  CheckParts(input, output, world_size_, at::kCPU);
  const MPI_Datatype type = TypeOf(input);
  const int count = CountOf(output);
  return Enqueue([output = std::move(output), input = std::move(input), type, count] {
    Check(MPI_Reduce_scatter_block(input.const_data_ptr(), output.mutable_data_ptr(), count, type,
                                   MPI_SUM, MPI_COMM_WORLD),
          "MPI_Reduce_scatter_block");
  });
}

void MpiCommunicator::Barrier() {
  Enqueue([] { Check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }).Wait();
}

void MpiCommunicator::Finalize() {
  Enqueue([] { Check(MPI_Finalize(), "MPI_Finalize"); }).Wait();
}

Work MpiCommunicator::Enqueue(std::function<void()> operation) {
  std::packaged_task<void()> task(std::move(operation));
  // A shared_ptr because std::function wants to be copied, which a future cannot.
  auto done = std::make_shared<std::future<void>>(task.get_future());
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  queued_.notify_one();
  return Work([done] { done->get(); });
}

void MpiCommunicator::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    queued_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::packaged_task<void()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace lockstep
