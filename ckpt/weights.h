// Reads weights from runs, checkpoints and files, and exports, averages or verifies them without training.
//
// A user names weights in one of three ways:
//   RUN         a run's final weights. If there are none, or if its newest checkpoint is of a later step, the
//               weights of that checkpoint
//   RUN@STEP    the weights of one checkpoint
//   FILE        a safetensors file
// If a run keeps averages of its weights (optimizer.ema_decay), both RUN and RUN@STEP mean the averaged weights.
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/weights_test.cc)
//   no such run, checkpoint or file, or a damaged one -> Error (kCheckpoint) naming it
//     -> Weights.NamesWhatIsNotThere, .RefusesADamagedCheckpoint
//   averages that lie in pieces of several ranks -> Error (kCheckpoint) -> Weights.RefusesAveragesInPieces
//   models that differ -> Error (kCheckpoint) naming the tensor -> Weights.MeansAreOfOneModel
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"

namespace lockstep {

// RUN or RUN@STEP.
struct RunPoint {
  std::string run_dir;
  std::optional<int64_t> step;
};
RunPoint ParseRunPoint(const std::string& text);

// The checkpoint that is meant, of RUN the newest. Throws Error (kCheckpoint) where there is none.
Checkpoint FindCheckpoint(const std::string& point);

// Where a run's final weights lie.
std::string RunWeightsPath(const std::string& run_dir);

// In that file's metadata: optimizer steps done.
inline constexpr char kStepOfWeights[] = "step";

using TensorsByName = std::map<std::string, at::Tensor>;

// On the CPU. Throws Error (kCheckpoint).
struct Weights {
  std::string path;  // that they are from
  TensorsByName tensors;
};
Weights ReadWeights(const std::string& source);

// The mean of each floating-point tensor, in its dtype; of others the last one's. Throws Error (kCheckpoint).
TensorsByName MeanOf(const std::vector<Weights>& weights);

}  // namespace lockstep
