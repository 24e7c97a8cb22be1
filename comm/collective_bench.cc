#include "comm/collective_bench.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/ceil_divide.h"

namespace lockstep {
namespace {

// Returns the input of rank `rank`: whole numbers that are so small that their sum over up to 80 ranks is exact in
// every dtype.
at::Tensor Pattern(int64_t elements, int64_t rank, const at::TensorOptions& options) {
  return (at::arange(elements, options.dtype(at::kLong)) % 3 + rank % 2).to(options);
}

class Operation {
 public:
  Operation(const CollectiveBench& bench, int64_t elements, Communicator& communicator,
            at::Device device)
      : op_(bench.op),
        communicator_(communicator),
        label_(communicator.MakeLabel("benchmark")),
        options_(at::TensorOptions(device).dtype(bench.dtype)),
        elements_(elements),
        whole_(communicator.Allocate(elements, bench.dtype)),
        part_(whole_.narrow(0, communicator.rank() * share(), share())) {}

  // Fills the buffers with the input of the collective.
  void Fill() {
    if (op_ == Op::kAllGather) {
      whole_.zero_();
      part_.copy_(Pattern(share(), communicator_.rank(), options_));
    } else {
      whole_.copy_(Pattern(elements_, communicator_.rank(), options_));
    }
  }

  void Run() {
    switch (op_) {
      case Op::kReduceScatter:
        return communicator_.ReduceScatterSum(part_, whole_, label_).Wait();
      case Op::kAllGather:
        return communicator_.AllGather(whole_, part_, label_).Wait();
      default:
        return communicator_.AllReduceSum(whole_, label_).Wait();
    }
  }

  // Returns how many elements of the result are wrong after Fill() and one Run().
  int64_t CountWrong() const {
    const int64_t ranks = communicator_.world_size();
    const auto sum_of = [&](int64_t count) {
      return (at::arange(count, options_.dtype(at::kLong)) % 3 * ranks + ranks / 2).to(options_);
    };
    switch (op_) {
      case Op::kReduceScatter:
        return part_.ne(sum_of(elements_).narrow(0, communicator_.rank() * share(), share()))
            .sum()
            .item<int64_t>();
      case Op::kAllGather: {
        int64_t wrong = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          wrong += whole_.narrow(0, rank * share(), share())
                       .ne(Pattern(share(), rank, options_))
                       .sum()
                       .item<int64_t>();
        }
        return wrong;
      }
      default:
        return whole_.ne(sum_of(elements_)).sum().item<int64_t>();
    }
  }

 private:
  int64_t share() const { return elements_ / communicator_.world_size(); }

  Op op_;
  Communicator& communicator_;
  Label label_;
  at::TensorOptions options_;
  int64_t elements_;
  at::Tensor whole_;
  at::Tensor part_;
};

// Returns the time of each of `count` calls, in microseconds.
template <typename Call>
std::vector<double> TimesOnHost(int count, Communicator& communicator, const Call& call) {
  const Label label = communicator.MakeLabel("benchmark");
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    communicator.Barrier(label);
    const auto begin = std::chrono::steady_clock::now();
    call();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  return times;
}

template <typename Call>
std::vector<double> TimesOnDevice(int count, const Call& call) {
  const auto make = [&] {
    std::vector<at::cuda::CUDAEvent> events;
    for (int i = 0; i < count; ++i) events.emplace_back(cudaEventDefault);
    return events;
  };
  std::vector<at::cuda::CUDAEvent> before = make();
  std::vector<at::cuda::CUDAEvent> after = make();
  for (int i = 0; i < count; ++i) {
    before[i].record();
    call();
    after[i].record();
  }
  at::cuda::getCurrentCUDAStream().synchronize();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) times.push_back(before[i].elapsed_time(after[i]) * 1e3);
  return times;
}

}  // namespace

CollectiveTiming Time(const CollectiveBench& bench, int64_t bytes, Communicator& communicator,
                      at::Device device) {
  const int64_t ranks = communicator.world_size();
  const auto size = static_cast<int64_t>(c10::elementSize(bench.dtype));
  const int64_t unit = ranks * size;
  const int64_t elements = CeilDivide(bytes, unit) * ranks;
  Operation operation(bench, elements, communicator, device);

  // The buffers hold zeros until Fill(), so repeated sums cannot overflow.
  for (int i = 0; i < bench.warmup; ++i) operation.Run();
  const auto run = [&] { operation.Run(); };
  std::vector<double> times = device.is_cuda() ? TimesOnDevice(bench.iterations, run)
                                               : TimesOnHost(bench.iterations, communicator, run);
  operation.Fill();
  operation.Run();

  std::nth_element(times.begin(), times.begin() + bench.iterations / 2, times.end());
  CollectiveTiming timing{.bytes = elements * size,
                          .time_us = times[bench.iterations / 2],
                          .wrong = operation.CountWrong()};
  const double factor = bench.op == Op::kAllReduce ? 2.0 : 1.0;
  timing.algbw_gbs = static_cast<double>(timing.bytes) / timing.time_us / 1e3;
  timing.busbw_gbs =
      timing.algbw_gbs * factor * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return timing;
}

}  // namespace lockstep
