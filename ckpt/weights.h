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

// What RUN or RUN@STEP names.
struct RunPoint {
  std::string run_dir;
  std::optional<int64_t> step;
};
RunPoint ParseRunPoint(const std::string& text);

// Returns the checkpoint that `point` names; for RUN this is the newest. Throws Error (kCheckpoint) if there is none.
Checkpoint FindCheckpoint(const std::string& point);

// Returns the path of a run's final weights.
std::string RunWeightsPath(const std::string& run_dir);

// The key, in the metadata of that file, of the number of optimizer steps done.
inline constexpr char kStepOfWeights[] = "step";

using TensorsByName = std::map<std::string, at::Tensor>;

// Weights on the CPU. ReadWeights() throws Error (kCheckpoint).
struct Weights {
  std::string path;  // the file or checkpoint from which they were read
  TensorsByName tensors;
};
Weights ReadWeights(const std::string& source);

// Returns the mean of each floating-point tensor, in its dtype, and of other tensors the last one. Throws Error
// (kCheckpoint).
TensorsByName MeanOf(const std::vector<Weights>& weights);

}  // namespace lockstep
