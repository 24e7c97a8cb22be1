// Foreteller: predicts, without a GPU, the memory that a config's training will take on a GPU.
//
// Method: the model, the optimizer and the step of the config run on a foretold GPU, a simulated GPU whose tensors have
// sizes but no memory (base/tensor/foretold_gpu.h). Nothing is computed, and each allocation is recorded with the size
// that it would have on a GPU. Two steps are made, as in training: the first step allocates the optimizer's moments,
// and the second step is captured as a CUDA graph if the config asks for graphs.
//
// A Foreteller does not know the workspaces that cuDNN and cuBLASLt choose for a product or a convolution, nor the
// memory that the driver and NCCL take. On one H100 the allocator took up to 160 MiB more than was predicted
// (tests/gpu/gpu_estimate_test.py).
//
// what can fail -> what the caller sees -> the test that shows it (tests/estimate_test.py)
//   a model whose code may read the values of tensors -> Error (kUsage) -> test_a_model_that_may_read_values
//   an operation without a kernel for the device META -> Error (kUsage) that names the operation
//     -> test_an_operation_that_cannot_be_foretold
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/tensor/foretold_gpu.h"
#include "comm/communicator.h"
#include "config/schema/config.pb.h"
#include "models/model.h"
#include "observe/memory/memory_report.h"
#include "trainer/step/world.h"

namespace lockstep {

// The number and the size of a step's micro-batches.
struct StepForm {
  int64_t micro_batch = 1;  // samples in a micro-batch of one rank
  int accumulation = 1;     // micro-batches in a step

  bool operator==(const StepForm&) const = default;
};

class Foreteller {
 public:
  // Constructs the model of `config`, to predict the memory of one of `ranks` ranks that train it on samples as `spec`
  // describes them. Draws no numbers from the process's random number generators. Throws Error.
  Foreteller(const config::Config& config, const SampleSpec& spec, const Models& models,
             const GpuTraits& gpu, int ranks);
  ~Foreteller();
  Foreteller(const Foreteller&) = delete;
  Foreteller& operator=(const Foreteller&) = delete;

  // Returns the peak memory of the first two steps, and the owners of that memory, on a GPU whose allocator may take
  // `capacity_bytes`. A small part of these bytes is left free for allocations that cannot be predicted. Returns
  // nothing if the steps do not fit in the memory, or if the config asks for graphs and the second step does not fit as
  // a CUDA graph. Throws Error.
  std::optional<MemoryReport> Memory(const StepForm& form, int64_t capacity_bytes);

  // Returns the largest micro-batch found, in samples, with which the first two steps fit in memory without gradient
  // accumulation (one that is up to about 0.4 % larger might fit, too); 0: not even one sample fits.
  int64_t LargestMicroBatch(int64_t capacity_bytes);

  int64_t parameters() const { return parameters_; }

 private:
  config::Config config_;
  SampleSpec spec_;
  std::unique_ptr<Communicator> ranks_;
  std::unique_ptr<Communicator> host_;
  std::shared_ptr<Model> model_;
  int64_t parameters_ = 0;
};

// Returns a Foreteller of this rank's memory in the training of `config`, which must give the samples' shape and
// classes. Returns null on a CPU, or if the model's code may read the values of tensors.
std::unique_ptr<Foreteller> ForetellerOf(const config::Config& config, const Models& models,
                                         const World& world);

// Returns the predicted memory of this rank's GPU for steps with the micro-batches `form`, and begins to compile the
// kernels that are generated for such steps (ops/generated/generated.h). Returns nothing if
// `foreteller` is null, or if the model has an operation whose memory cannot be predicted.
std::optional<MemoryReport> ForetoldMemoryOf(Foreteller* foreteller, const StepForm& form,
                                             const World& world);

// Returns the StepForm of steps that have `accumulation` micro-batches: this number, and the size of a rank's
// micro-batches.
StepForm StepFormOf(const config::Config& config, int64_t accumulation, int ranks);

}  // namespace lockstep
