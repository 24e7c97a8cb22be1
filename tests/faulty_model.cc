// Runs lockstep with a model of its own, a linear layer that fails as the model's options say:
//   fault  what happens in the training forward number `at`, counted from 0, on rank `rank` (-1: on every rank)
//   1      the model throws
//   2      the rank's process is killed
//   3      the mpirun that started the rank is killed
//   4      the bias is unused from that forward on; if `until` is given, it is used again from forward `until` on
//   5      the rank's process is stopped (SIGSTOP)
//   6      BatchNorm is not synchronised, so this rank skips a collective (with `norm` and
//          ddp.sync_batch_norm)
//   7      the forward never returns
//   8      from that forward on, each forward of more than `fits` samples throws an out-of-memory error
//   9      like 8, but in the backward
//   10     like 8, but on a GPU whose free memory is fragmented, so that an allocation really fails
// Other options of the model: each training forward takes `sleep_us` microseconds longer on rank `rank` and `base_us`
// longer on each rank. Each training forward leaks `leak_kb` KiB of host memory, and a tensor of `leak_tensor_kb` KiB
// on the device. With `grows_to` each training forward multiplies two square matrices, which have `grows_to` / 4 rows
// before the forward number `at`, and `grows_to` rows from that forward on. `dropout` is the percentage of the outputs
// that are dropped. With `record`, each training forward appends a line with the first number of each of its samples to
// a file, whose name is `record` followed by the rank. `twice` registers the layer under a second name, `norm` puts
// BatchNorm behind the layer, and `name_by_rank` names the layer after the rank. With `waits` every forward reads a
// number from the device, and so waits for the device.
//
// Options of the data set: each Read() sleeps for `sleep_us` microseconds, and computes for `busy_us` microseconds of
// CPU time. The Read() number `at`, counted from 0, throws a DataError on rank `rank` (-1: on every rank). With `hang`
// the constructor never returns.

#include <c10/cuda/CUDACachingAllocator.h>
#include <signal.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/tensor/range.h"
#include "data/tables/csv.h"
#include "launch/main.h"
#include "models/batch_norm.h"
#include "observe/device_memory.h"

namespace {

enum Fault {
  kNone = 0,
  kThrow = 1,
  kKillRank = 2,
  kKillMpirun = 3,
  kUnusedBias = 4,
  kStopRank = 5,
  kSkipCollective = 6,
  kNeverReturn = 7,
  kNoMemory = 8,
  kNoMemoryInBackward = 9,
  kFragments = 10
};

[[noreturn]] void RunOutOfMemory() {
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory: planted");
}

// Limits this process to 2 GiB of the GPU's memory, and makes LibTorch's caching allocator hold all but 256 to 456 MiB
// of these 2 GiB as blocks of 200 MiB. One half of each block is free, and the function returns the tensors that occupy
// the other halves.
std::vector<at::Tensor> Fragment(at::Device device) {
  constexpr int64_t kMebi = 1 << 20;
  constexpr int64_t kLimit_bytes = 2048 * kMebi;
  constexpr int64_t kPiece_bytes = 200 * kMebi;
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto total = static_cast<double>(lockstep::TotalDeviceBytes(device));
  allocator::emptyCache();
  allocator::setMemoryFraction(static_cast<double>(kLimit_bytes) / total, device.index());
  const int64_t left = kLimit_bytes - lockstep::ReadDeviceMemory(device).reserved_bytes;
  const int64_t pieces = (left - 256 * kMebi) / kPiece_bytes;
  const auto take = [&](int64_t count, int64_t bytes) {
    std::vector<at::Tensor> blocks;
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte)));
    }
    return blocks;
  };
  take(pieces, kPiece_bytes);
  const std::vector<at::Tensor> halves = take(2 * pieces, kPiece_bytes / 2);
  std::vector<at::Tensor> kept;
  for (size_t i = 0; i < halves.size(); i += 2) kept.push_back(halves[i]);
  return kept;
}

int OwnRank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

void Sleep(int64_t us) {
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

bool IsMeant(int64_t rank) { return rank == -1 || rank == OwnRank(); }

class FaultyModel : public lockstep::Model {
 public:
  explicit FaultyModel(const lockstep::ModelSpec& spec)
      : fault_(spec.options.Integer("fault", kNone)),
        until_(spec.options.Integer("until", std::numeric_limits<int64_t>::max())),
        rank_(spec.options.Integer("rank", 0)),
        at_(spec.options.Integer("at", 0)),
        fits_(spec.options.Integer("fits", 0)),
        dropout_(static_cast<double>(spec.options.Integer("dropout", 0)) / 100),
        waits_(spec.options.Integer("waits", 0) != 0),
        record_(spec.options.Text("record", "")),
        sleep_us_(spec.options.Integer("sleep_us", 0)),
        base_us_(spec.options.Integer("base_us", 0)),
        leak_kb_(spec.options.Integer("leak_kb", 0)),
        leak_tensor_kb_(spec.options.Integer("leak_tensor_kb", 0)),
        grows_to_(spec.options.Integer("grows_to", 0)),
        linear_(torch::nn::Linear(c10::multiply_integers(spec.input_shape), spec.classes)) {
    const bool by_rank = spec.options.Integer("name_by_rank", 0) != 0;
    register_module(by_rank ? "linear" + std::to_string(OwnRank()) : "linear", linear_);
    if (spec.options.Integer("twice", 0) != 0) register_module("again", linear_);
    if (spec.options.Integer("norm", 0) != 0) {
      norm_ = register_module(
          "norm", std::make_shared<lockstep::BatchNorm>(spec.classes, spec.sync_batch_norm));
    }
  }

  at::Tensor Forward(const at::Tensor& input) override {
    const lockstep::Range module("linear");
    const bool now = is_training() && forwards_ == at_ && IsMeant(rank_);
    const bool too_many =
        is_training() && forwards_ >= at_ && IsMeant(rank_) && input.size(0) > fits_;
    if (is_training()) ++forwards_;
    if (is_training()) Sleep(base_us_ + (IsMeant(rank_) ? sleep_us_ : 0));
    if (is_training() && leak_kb_ > 0)
      leaked_.emplace_back(static_cast<size_t>(leak_kb_) << 10, 'x');
    if (is_training() && leak_tensor_kb_ > 0) {
      leaked_tensors_.push_back(
          at::ones({leak_tensor_kb_ << 8}, input.options().dtype(at::kFloat)));
    }
    // This product takes longer from the forward number `at` on.
    if (is_training() && grows_to_ > 0) {
      const int64_t side = forwards_ > at_ ? grows_to_ : grows_to_ / 4;
      const at::Tensor matrix = at::ones({side, side}, input.options().dtype(at::kFloat));
      at::mm(matrix, matrix);
    }
    if (is_training() && !record_.empty()) Record(input.select(1, 0).cpu());
    if (too_many && fault_ == kNoMemory) RunOutOfMemory();
    if (too_many && fault_ == kFragments) {
      if (leaked_tensors_.empty()) leaked_tensors_ = Fragment(input.device());
      at::empty({int64_t{512} << 20}, input.options().dtype(at::kByte));
    }
    if (now && fault_ == kThrow) throw std::runtime_error("the model broke\nsecond line");
    if (now && fault_ == kKillRank) kill(getpid(), SIGKILL);
    if (now && fault_ == kKillMpirun) kill(getppid(), SIGKILL);
    if (now && fault_ == kStopRank) kill(getpid(), SIGSTOP);
    while (now && fault_ == kNeverReturn) pause();
    const bool without_bias =
        fault_ == kUnusedBias && forwards_ > at_ && forwards_ <= until_ && IsMeant(rank_);
    at::Tensor output =
        at::linear(input.flatten(1), linear_->weight, without_bias ? at::Tensor() : linear_->bias);
    if (dropout_ > 0) output = at::dropout(output, dropout_, is_training());
    if (too_many && fault_ == kNoMemoryInBackward) {
      output.register_hook([](const at::Tensor&) -> at::Tensor { RunOutOfMemory(); });
    }
    if (waits_ && output.sum().item<float>() == 1e9F) return output + 1;
    if (!norm_) return output;
    if (!now || fault_ != kSkipCollective) return norm_->forward(output);
    const auto parameters = norm_->named_parameters();
    return at::batch_norm(output, parameters["weight"], parameters["bias"], /*running_mean=*/{},
                          /*running_var=*/{}, /*training=*/true, /*momentum=*/0.1, /*eps=*/1e-5,
                          /*cudnn_enabled=*/false);
  }

 private:
  void Record(const at::Tensor& numbers) const {
    std::ofstream file(record_ + std::to_string(OwnRank()), std::ios::app);
    for (int64_t i = 0; i < numbers.numel(); ++i) file << numbers[i].item<float>() << ' ';
    file << '\n' << std::flush;
  }

  int64_t fault_;
  int64_t until_;
  int64_t rank_;
  int64_t at_;
  int64_t fits_;
  double dropout_;
  bool waits_;
  std::string record_;
  int64_t sleep_us_;
  int64_t base_us_;
  int64_t leak_kb_;
  int64_t leak_tensor_kb_;
  int64_t grows_to_;
  std::vector<std::vector<char>> leaked_;
  std::vector<at::Tensor> leaked_tensors_;
  int64_t forwards_ = 0;
  torch::nn::Linear linear_;
  std::shared_ptr<lockstep::BatchNorm> norm_;
};

// Reads CSV files such as the digits, and fails as the data set's options say.
class FaultyDataset : public lockstep::Dataset {
 public:
  explicit FaultyDataset(const lockstep::DatasetSource& source)
      : rows_(lockstep::ReadCsv({.files = source.files, .scale = 0.0625}).dataset),
        rank_(source.options.Integer("rank", 0)),
        at_(source.options.Integer("at", -1)),
        sleep_us_(source.options.Integer("sleep_us", 0)),
        busy_us_(source.options.Integer("busy_us", 0)) {
    while (source.options.Integer("hang", 0) != 0) pause();
  }

  int64_t size() const override { return rows_->size(); }
  const lockstep::SampleSpec& spec() const override { return rows_->spec(); }

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    if (reads_++ == at_ && IsMeant(rank_)) {
      throw lockstep::DataError("picture-{}.jpg: the file is cut short", index);
    }
    Sleep(sleep_us_);
    const double begin = lockstep::ThreadCpuSeconds();
    while (1e6 * (lockstep::ThreadCpuSeconds() - begin) < static_cast<double>(busy_us_)) {
    }
    rows_->Read(index, epoch, input, target);
  }

 private:
  std::shared_ptr<const lockstep::Dataset> rows_;
  int64_t rank_;
  int64_t at_;
  int64_t sleep_us_;
  int64_t busy_us_;
  mutable std::atomic<int64_t> reads_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  lockstep::Models models = lockstep::BuiltInModels();
  models.Add<FaultyModel>("faulty");
  lockstep::Datasets datasets;
  datasets.Add<FaultyDataset>("faulty");
  lockstep::End(lockstep::Main(argc, argv, models, datasets));
}
