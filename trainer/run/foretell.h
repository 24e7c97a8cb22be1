// Foreteller: the memory that a config's training will take on a GPU, learnt without the GPU.
//
// How: the config's own model, optimizer and step run on a foretold GPU (base/tensor/foretold_gpu.h), whose tensors
// have sizes and no memory. So nothing is computed, and each allocation is the one that the step would make. The first
// two steps are made, as in training: in the first the optimizer's moments are made, and the second is captured as a
// CUDA graph, if the config asks for graphs.
//
// It does not know the workspaces that cuDNN and cuBLASLt choose for a product or a convolution, nor the memory that
// the driver and NCCL take. The allocator took up to 160 MiB more than was foretold on one H100
// (tests/gpu/gpu_estimate_test.py).
//
// what can fail -> what the caller sees -> the test that shows it (tests/estimate_test.py)
//   a model that may read values -> Error (kUsage) -> test_a_model_that_may_read_values
//   an operation without a kernel for the device META -> Error (kUsage) that names it
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

// How a step is made.
struct StepForm {
  int64_t micro_batch = 1;  // samples of a rank's micro-batch
  int accumulation = 1;
};

class Foreteller {
 public:
  // Foretells of one of `ranks` ranks that train `config`, whose samples are `spec`. Makes the model, once. Draws no
  // random numbers of the process. Throws Error.
  Foreteller(const config::Config& config, const SampleSpec& spec, const Models& models,
             const GpuTraits& gpu, int ranks);
  ~Foreteller();
  Foreteller(const Foreteller&) = delete;
  Foreteller& operator=(const Foreteller&) = delete;

  // Returns the most memory that the first two steps take, and what it is for, of a GPU whose allocator may take
  // `capacity_bytes`, of which a little is left for what is not known. Nothing: they do not fit, or not as a CUDA
  // graph. Throws Error.
  std::optional<MemoryReport> Memory(const StepForm& form, int64_t capacity_bytes);

  // Returns the largest micro-batch with which they fit; 0: not even one sample does.
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

// Returns a Foreteller of this rank when it trains `config`, which names the samples' shape and classes. It is null on
// a CPU, and for a model that may read values.
std::unique_ptr<Foreteller> ForetellerOf(const config::Config& config, const Models& models,
                                         const World& world);

// Returns the foretold memory of this rank's GPU, if steps have that form. Returns nothing without a foreteller, or if
// the model has an operation that cannot be foretold.
std::optional<MemoryReport> ForetoldMemoryOf(Foreteller* foreteller, const StepForm& form,
                                             const World& world);

// Returns how a rank's steps are made in so many micro-batches.
StepForm StepFormOf(const config::Config& config, int64_t accumulation, int ranks);

}  // namespace lockstep
