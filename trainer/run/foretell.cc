#include "trainer/run/foretell.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/memory_scope.h"
#include "base/tensor/foretold_memory.h"
#include "comm/alone.h"
#include "comm/together.h"
#include "data/feed/augment.h"
#include "data/feed/device_feed.h"
#include "observe/device_memory.h"
#include "trainer/run/foretold_kernels.h"
#include "trainer/run/make_model.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/step.h"

namespace lockstep {
namespace {

const at::Device kForetold(at::kMeta);

// Returns how many bytes of a GPU to leave free for allocations that cannot be predicted: workspaces of libraries, and
// the gaps that these workspaces cause between blocks.
int64_t Unknown(int64_t capacity_bytes) { return (64 << 20) + capacity_bytes / 80; }

// Allocates two workspaces, as large as those that ATen allocates for cuBLAS and cuBLASLt.
std::vector<at::Tensor> Workspaces() {
  constexpr int kHopper = 9;
  const int64_t bytes = TraitsOf(kForetold).major >= kHopper ? 32 << 20 : (8 << 20) + (128 << 10);
  const at::TensorOptions options = at::TensorOptions(kForetold).dtype(at::kByte);
  return {at::empty({bytes}, options), at::empty({bytes}, options)};
}

// A communicator for rank 0 of `ranks` ranks, of which only rank 0 exists. The collectives of this communicator return
// at once.
class Unanswered final : public Communicator {
 public:
  Unanswered(at::Device device, int ranks) : alone_(MakeAlone(device)), ranks_(ranks) {}

  int rank() const override { return 0; }
  int world_size() const override { return ranks_; }
  Label MakeLabel(std::string_view) override { return {}; }

  Work AllReduceSum(at::Tensor, Label) override { return {}; }
  Work Broadcast(at::Tensor, int, Label) override { return {}; }
  // Fills `output` as if all ranks had the same input.
  Work AllGather(at::Tensor output, at::Tensor input, Label) override {
    output.view({ranks_, -1}).copy_(input.view({1, -1}).expand({ranks_, -1}));
    return {};
  }
  Work ReduceScatterSum(at::Tensor, at::Tensor, Label) override { return {}; }
  void Barrier(Label) override {}
  at::Tensor Allocate(int64_t elements, at::ScalarType dtype) override {
    return alone_->Allocate(elements, dtype);
  }

 private:
  std::unique_ptr<Communicator> alone_;
  int ranks_;
};

// A feed that allocates slots (tensors for a micro-batch) as a DeviceFeed does, and whose Next() returns micro-batches
// of `count` samples in these slots.
class ForetoldFeed final : public MicroBatches {
 public:
  ForetoldFeed(const SampleSpec& spec, const AugmentOptions& augment, int64_t count,
               int64_t global_count)
      : count_(count), global_count_(global_count) {
    for (int i = 0; i < DeviceFeed::kSlots; ++i) {
      slots_.push_back({.input = EmptyInputs(spec, count, kForetold),
                        .target = EmptyTargets(spec, count, kForetold),
                        .draws = EmptyDraws(augment, count, kForetold)});
    }
  }

  DeviceBatch Next() override {
    DeviceBatch batch = slots_[next_++ % slots_.size()];
    batch.origin.global_count = global_count_;
    batch.origin.indices.resize(count_);
    return batch;
  }
  void Prefetch() override {}

  void AddTo(std::vector<OwnedTensor>& held) const {
    for (const DeviceBatch& slot : slots_) {
      for (const at::Tensor& tensor : {slot.input, slot.target, slot.draws}) {
        held.push_back({MemoryOwner::kSamples, tensor});
      }
    }
  }

 private:
  int64_t count_;
  int64_t global_count_;
  std::vector<DeviceBatch> slots_;
  size_t next_ = 0;
};

// Allocates the model's parameters and buffers anew in the current ForetoldMemory, and drops their gradients.
void Renew(Model& model) {
  for (const std::vector<at::Tensor>& tensors : {model.parameters(), model.buffers()}) {
    for (const at::Tensor& tensor : tensors) {
      tensor.mutable_grad() = at::Tensor();
      MoveToForetold(tensor);
    }
  }
}

MemoryReport ReportOfStep(Step& step, int number, const CachingAllocator& allocator,
                          int64_t capacity_bytes) {
  const MemoryTally& tally = step.memory().tally();
  return ReportOf(tally, PhaseNames(),
                  {.step = number,
                   .on_gpu = true,
                   .allocated_peak = tally.peak_bytes(),
                   .reserved_bytes = allocator.most_reserved_bytes(),
                   .device_bytes = capacity_bytes,
                   .pool_bytes = allocator.graph_bytes(),
                   .captured = step.has_captured()});
}

}  // namespace

Foreteller::Foreteller(const config::Config& config, const SampleSpec& spec, const Models& models,
                       const GpuTraits& gpu, int ranks)
    : config_(config),
      spec_(spec),
      ranks_(std::make_unique<Unanswered>(kForetold, ranks)),
      host_(std::make_unique<Unanswered>(at::kCPU, ranks)) {
  Foretell(gpu, /*stands_for=*/std::nullopt);
  RegisterForetoldKernels();
  // PrecisionOn() throws if a GPU like `gpu` does not support the precision.
  const config::Precision precision = PrecisionOn(kForetold, config_.precision());
  const ForetoldMemory memory(std::numeric_limits<int64_t>::max());
  const Foretelling foretelling(/*fills=*/false);
  model_ = models.Make(ModelSpecOf(config, spec, *ranks_));
  if (!models.CanForetell(config.model().name())) {
    throw UsageError(
        "model.name: the memory of \"{}\" cannot be foretold, because the model may read values: "
        "if it reads none, add it with Models::Reads::kNothing (models/model.h)",
        config.model().name());
  }
  Renew(*model_);
  // MoveTo() gives the parameters and buffers the memory layout that they have on a GPU.
  model_->MoveTo(kForetold, /*rounds=*/Is16Bit(precision));
  for (const at::Tensor& parameter : model_->parameters()) parameters_ += parameter.numel();
}

Foreteller::~Foreteller() = default;

std::optional<MemoryReport> Foreteller::Memory(const StepForm& form, int64_t capacity_bytes) {
  const ForetoldMemory memory(capacity_bytes - Unknown(capacity_bytes));
  const Foretelling foretelling(/*fills=*/true);
  const World world{.device = kForetold, .communicator = *ranks_, .host = *host_};
  config_.set_accumulation(form.accumulation);
  std::optional<MemoryReport> most;
  try {
    Renew(*model_);
    model_->train();
    const Preprocessing preprocessing(config_.data(), spec_, kForetold,
                                      PrecisionOn(kForetold, config_.precision()));
    Step step(config_, *model_, preprocessing, spec_, form.micro_batch, world);
    const std::string why_no_graph = step.why_no_graph();
    ForetoldFeed feed(spec_, AugmentOptionsFor(config_), form.micro_batch,
                      form.micro_batch * form.accumulation * world.size());
    const std::vector<at::Tensor> workspaces = Workspaces();
    const auto held = [&] {
      std::vector<OwnedTensor> tensors = step.HeldTensors();
      feed.AddTo(tensors);
      for (const at::Tensor& tensor : workspaces) {
        tensors.push_back({MemoryOwner::kWorkspaces, tensor});
      }
      return tensors;
    };
    constexpr int kSteps = 2;
    for (int number = 1; number <= kSteps; ++number) {
      bool fits = false;
      step.memory().During(held, [&] { fits = step.Run(config_.optimizer().lr(), feed); });
      if (!fits || step.why_no_graph() != why_no_graph) return std::nullopt;
      MemoryReport report = ReportOfStep(step, number, memory.allocator(), capacity_bytes);
      if (most && most->peak_bytes >= report.peak_bytes) {
        most->reserved_bytes = report.reserved_bytes;
      } else {
        most = std::move(report);
      }
    }
  } catch (const std::exception& exception) {
    if (IsOutOfMemory(exception)) return std::nullopt;
    if (dynamic_cast<const Error*>(&exception) != nullptr) throw;
    throw UsageError("the memory of \"{}\" cannot be foretold: {}", config_.model().name(),
                     ErrorOf(exception).what());
  }
  return most;
}

int64_t Foreteller::LargestMicroBatch(int64_t capacity_bytes) {
  const auto fits = [&](int64_t samples) {
    return Memory({.micro_batch = samples}, capacity_bytes).has_value();
  };
  // Memory grows almost linearly with the number of samples. So the search begins at a guess, which is extrapolated
  // from the memory that 8 and 32 samples take if there is no limit.
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;
  constexpr int64_t kFew = 8;
  const auto reserved = [&](int64_t samples) {
    const std::optional<MemoryReport> report = Memory({.micro_batch = samples}, kAll);
    return report ? static_cast<double>(report->reserved_bytes) : static_cast<double>(kAll);
  };
  const double of_few = reserved(kFew);
  const double of_more = reserved(4 * kFew);
  const double each = std::max(1.0, (of_more - of_few) / (3 * kFew));
  const double guess = kFew + (static_cast<double>(capacity_bytes) - of_few) / each;
  constexpr int64_t kMost = 1 << 24;  // larger micro-batches are not tried
  constexpr int64_t kPrecision = 256;
  int64_t fitting = 0;
  int64_t too_large = kMost + 1;
  int64_t samples = std::clamp(static_cast<int64_t>(guess), int64_t{1}, kMost);
  int64_t step = std::max<int64_t>(1, samples / 64);
  while (too_large - fitting > 1 + fitting / kPrecision) {
    (fits(samples) ? fitting : too_large) = samples;
    const bool is_between = fitting > 0 && too_large <= kMost;
    samples = is_between    ? fitting + (too_large - fitting) / 2
              : fitting > 0 ? std::min(fitting + step, kMost)
                            : std::max(too_large - step, int64_t{1});
    step *= 2;
  }
  // The fragmentation of the allocator's memory varies with the sizes of blocks. So a larger micro-batch may fit
  // although a slightly smaller one does not. This loop tries micro-batches that are 2 % to 12 % larger than the
  // largest that fits.
  constexpr int64_t kFurther = 6;
  for (int64_t i = 1; fitting > 0 && fitting < kMost && i <= kFurther; ++i) {
    const int64_t more = fitting + CeilDivide(fitting * i, int64_t{50});
    if (more > fitting && fits(more)) {
      fitting = more;
      i = 0;
    }
  }
  return fitting;
}

std::unique_ptr<Foreteller> ForetellerOf(const config::Config& config, const Models& models,
                                         const World& world) {
  if (!world.device.is_cuda() || !models.CanForetell(config.model().name())) return nullptr;
  return std::make_unique<Foreteller>(config, SpecOf(config.data()), models, TraitsOf(world.device),
                                      world.size());
}

std::optional<MemoryReport> ForetoldMemoryOf(Foreteller* foreteller, const StepForm& form,
                                             const World& world) {
  if (foreteller == nullptr) return std::nullopt;
  // Only here, so that a search for a form compiles nothing for the forms that it tries.
  struct StandsForThisGpu {
    explicit StandsForThisGpu(at::Device device) : traits(TraitsOf(device)) {
      Foretell(traits, device);
    }
    ~StandsForThisGpu() { Foretell(traits, std::nullopt); }
    StandsForThisGpu(const StandsForThisGpu&) = delete;
    StandsForThisGpu& operator=(const StandsForThisGpu&) = delete;
    GpuTraits traits;
  } const stands_for(world.device);
  try {
    std::optional<MemoryReport> report =
        foreteller->Memory(form, std::numeric_limits<int64_t>::max());
    if (!report) return std::nullopt;
    report->is_foretold = true;
    report->device_bytes = TotalDeviceBytes(world.device);
    return report;
  } catch (const Error&) {
    return std::nullopt;
  }
}

StepForm StepFormOf(const config::Config& config, int64_t accumulation, int ranks) {
  return {.micro_batch = CeilDivide(config.global_batch(), int64_t{ranks} * accumulation),
          .accumulation = static_cast<int>(accumulation)};
}

}  // namespace lockstep
