#include "comm/mpi_communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

// The MPI type and operation that sum a dtype. MPI has no 16-bit floating-point types. Such values are sent as
// integers, and a user-defined operation sums them.
struct Sum {
  MPI_Datatype type;
  MPI_Op op;
};

template <typename Number>
void Add(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const Number*>(in);
  auto* to = static_cast<Number*>(inout);
  for (int i = 0; i < *count; ++i) to[i] = static_cast<float>(to[i]) + static_cast<float>(from[i]);
}

// Returns the MPI operation that sums values of type `Number`. Must be called on the thread that calls MPI.
template <typename Number>
MPI_Op AddingOp() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    Check(MPI_Op_create(&Add<Number>, /*commute=*/1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

Sum SumOf(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return {MPI_UINT8_T, MPI_SUM};
    case at::kInt:
      return {MPI_INT32_T, MPI_SUM};
    case at::kLong:
      return {MPI_INT64_T, MPI_SUM};
    case at::kHalf:
      return {MPI_UINT16_T, AddingOp<c10::Half>()};
    case at::kBFloat16:
      return {MPI_UINT16_T, AddingOp<c10::BFloat16>()};
    case at::kFloat:
      return {MPI_FLOAT, MPI_SUM};
    default:
      return {MPI_DOUBLE, MPI_SUM};
  }
}

void CheckSummable(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      return;
    default:
      throw BugError("MPI collective on a tensor of {}", c10::toString(tensor.scalar_type()));
  }
}

// The size of the pieces in which long tensors are summed and broadcast. A piece of this size stays in a core's cache
// while MPI passes it through shared memory. With small pieces MPI also does not return its scratch memory to the
// kernel after each call.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Calls send(first element, count) for each piece of the `count` elements.
template <typename Send>
void InPieces(int64_t count, int64_t element_bytes, const Send& send) {
  const int64_t piece = kPieceBytes / element_bytes;
  for (int64_t first = 0; first < count; first += piece) {
    send(first, static_cast<int>(std::min(piece, count - first)));
  }
}

// Returns when every rank has called MeetOthers(). MPI's operations busy-wait and thereby occupy a core. A rank that
// comes early therefore waits in this function, in which it sleeps if the wait is longer than 2 ms, so that other
// processes can use the core. The MPI operation after this call then hardly has to wait. A call takes two microseconds
// between two ranks of one machine.
void MeetOthers() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kAlone{100};
  constexpr std::chrono::milliseconds kAwake{2};
  constexpr std::chrono::microseconds kLongest{500};
  MPI_Request request = MPI_REQUEST_NULL;
  Check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  const auto begin = Clock::now();
  while (true) {
    int met = 0;
    Check(MPI_Test(&request, &met, MPI_STATUS_IGNORE), "MPI_Test");
    if (met != 0) return;
    const Clock::duration waited = Clock::now() - begin;
    if (waited < kAlone) continue;
    if (waited < kAwake) {
      sched_yield();
    } else {
      // Sleeps for a sixteenth of the time waited so far, but at most 0.5 ms.
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / 16, kLongest));
    }
  }
}

std::byte* BytesOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

MpiCommunicator::MpiCommunicator(FlightRecorder& recorder)
    : recorder_(recorder), thread_([this] { Run(); }) {
  try {
    OnThread([this] {
      core_wait_.emplace();
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
      int first = rank_;
      Check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, machine), "MPI_Allreduce");
      Check(MPI_Comm_free(&machine), "MPI_Comm_free");
      first_elsewhere_ = first == 0 ? world_size_ : rank_;
      Check(MPI_Allreduce(MPI_IN_PLACE, &first_elsewhere_, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
            "MPI_Allreduce");
    }).Wait();
    is_initialised_ = true;
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

Work MpiCommunicator::AllReduceSum(at::Tensor tensor, Label label) {
  CheckSendable(tensor, at::kCPU);
  CheckSummable(tensor);
  const size_t bytes = tensor.nbytes();
  return Enqueue(Op::kAllReduce, bytes, label, [tensor = std::move(tensor)] {
    const Sum sum = SumOf(tensor.scalar_type());
    const int64_t size = tensor.element_size();
    InPieces(tensor.numel(), size, [&](int64_t first, int count) {
      Check(MPI_Allreduce(MPI_IN_PLACE, BytesOf(tensor) + first * size, count, sum.type, sum.op,
                          MPI_COMM_WORLD),
            "MPI_Allreduce");
    });
  });
}

Work MpiCommunicator::Broadcast(at::Tensor tensor, int root, Label label) {
  CheckSendable(tensor, at::kCPU);
  const size_t bytes = tensor.nbytes();
  return Enqueue(Op::kBroadcast, bytes, label, [tensor = std::move(tensor), root] {
    // The bytes are copied as they are, so tensors of any dtype can be broadcast.
    InPieces(static_cast<int64_t>(tensor.nbytes()), 1, [&](int64_t first, int count) {
      Check(MPI_Bcast(BytesOf(tensor) + first, count, MPI_BYTE, root, MPI_COMM_WORLD), "MPI_Bcast");
    });
  });
}

Work MpiCommunicator::AllGather(at::Tensor output, at::Tensor input, Label label) {
  CheckParts(output, input, world_size_, at::kCPU);
  if (input.nbytes() > INT_MAX) throw BugError("MPI all-gather of {} bytes a rank", input.nbytes());
  const size_t bytes = output.nbytes();
  return Enqueue(Op::kAllGather, bytes, label,
                 [output = std::move(output), input = std::move(input), rank = rank_] {
                   const int count = static_cast<int>(input.nbytes());
                   const bool in_place =
                       BytesOf(input) == BytesOf(output) + static_cast<int64_t>(rank) * count;
                   Check(MPI_Allgather(in_place ? MPI_IN_PLACE : BytesOf(input), count, MPI_BYTE,
                                       BytesOf(output), count, MPI_BYTE, MPI_COMM_WORLD),
                         "MPI_Allgather");
                 });
}

Work MpiCommunicator::ReduceScatterSum(at::Tensor output, at::Tensor input, Label label) {
  CheckParts(input, output, world_size_, at::kCPU);
  CheckSummable(input);
  const size_t bytes = input.nbytes();
  return Enqueue(
      Op::kReduceScatter, bytes, label,
      [output = std::move(output), input = std::move(input), rank = rank_] {
        const Sum sum = SumOf(input.scalar_type());
        const int64_t size = input.element_size();
        const int64_t own_begin = rank * output.numel();
        const int64_t own_end = own_begin + output.numel();
        std::vector<std::byte> piece(kPieceBytes);
        InPieces(input.numel(), size, [&](int64_t first, int count) {
          std::memcpy(piece.data(), BytesOf(input) + first * size, count * size);
          Check(MPI_Allreduce(MPI_IN_PLACE, piece.data(), count, sum.type, sum.op, MPI_COMM_WORLD),
                "MPI_Allreduce");
          const int64_t begin = std::max(first, own_begin);
          const int64_t end = std::min(first + count, own_end);
          if (begin >= end) return;
          std::memcpy(BytesOf(output) + (begin - own_begin) * size,
                      piece.data() + (begin - first) * size, (end - begin) * size);
        });
      });
}

void MpiCommunicator::Barrier(Label label) {
  // Enqueue() calls MeetOthers() before every operation, so a barrier is an empty operation.
  Enqueue(Op::kBarrier, 0, label, [] {}).Wait();
}

at::Tensor MpiCommunicator::Allocate(int64_t elements, at::ScalarType dtype) {
  return at::zeros({elements}, dtype);
}

void MpiCommunicator::Finalize() {
  OnThread([] { Check(MPI_Finalize(), "MPI_Finalize"); }).Wait();
}

Work MpiCommunicator::Enqueue(Op op, size_t bytes, Label label, std::function<void()> operation) {
  const uint64_t sequence = recorder_.Enqueued(Channel::kMpi, op, bytes, label);
  return OnThread([this, sequence, operation = std::move(operation)] {
    if (world_size_ > 1) MeetOthers();
    operation();
    recorder_.Done(Channel::kMpi, sequence);
  });
}

Work MpiCommunicator::OnThread(std::function<void()> act) {
  using Clock = std::chrono::steady_clock;
  // A load and a store of waited_s_ need not be one atomic operation, because only the training thread counts.
  const auto count = [](std::atomic<double>& sum, double seconds) {
    sum.store(sum + seconds, std::memory_order_relaxed);
  };
  const auto count_since = [this, count](Clock::time_point begin) {
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    count(waited_s_, seconds.count());
  };
  const auto begin = Clock::now();
  std::packaged_task<void()> task(std::move(act));
  // The future is in a shared_ptr, because a std::function must be copyable and a future is not.
  auto done = std::make_shared<std::future<void>>(task.get_future());
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  queued_.notify_one();
  count_since(begin);
  return Work([this, count, count_since, done] {
    const auto begin = Clock::now();
    // Reading the thread's wait takes microseconds, so it is not read where there is nothing to wait for.
    const bool is_done = done->wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    const double before_s = is_done || !is_initialised_ ? -1 : core_wait_->Read().waiting;
    done->get();
    if (before_s >= 0) count(waited_for_core_s_, core_wait_->Read().waiting - before_s);
    count_since(begin);
  });
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
