// Reads and verifies the weights of runs, checkpoints and files, and averages several of them.
//
// A user names weights in one of these ways:
//   RUN@STEP    the weights of one checkpoint
//   RUN@best    the weights of the best checkpoint (BestCheckpoint())
//   RUN@last    a run's final weights. If there are none, or if the run's newest checkpoint is of a later
//               step, the weights of the newest checkpoint
//   RUN         RUN@best if the run keeps its best checkpoint (checkpoint.keep_best) and has one, otherwise RUN@last
//   FILE        a safetensors file
// If a run keeps averages of its weights (optimizer.ema_decay), all names that begin with RUN mean the averaged
// weights.
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/weights_test.cc)
//   RUN@best of a run that has no best checkpoint -> Error (kCheckpoint) -> Weights.AreTheBest
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

// The run and the checkpoint that a text such as RUN, RUN@STEP, RUN@best or RUN@last names.
struct RunPoint {
  enum class Which { kUsual, kStep, kBest, kLast };

  std::string run_dir;
  Which which = Which::kUsual;
  int64_t step = 0;  // the STEP of RUN@STEP; used only with kStep
};
RunPoint ParseRunPoint(const std::string& text);

// Returns the checkpoint that `point` names. For RUN and RUN@last this is the newest checkpoint. Throws Error
// (kCheckpoint) if there is no such checkpoint.
Checkpoint FindCheckpoint(const std::string& point);

// Returns the path of a run's final weights.
std::string RunWeightsPath(const std::string& run_dir);

// The key under which the metadata of the final weights' file holds the number of optimizer steps done.
inline constexpr char kStepOfWeights[] = "step";

// The key under which the metadata of a file of weights holds the graph that they were trained in, if the config does
// not say it: see GraphText() (trainer/run/made_of.h).
inline constexpr char kGraphOfWeights[] = "lockstep_graph";

using TensorsByName = std::map<std::string, at::Tensor>;

// Weights on the CPU. ReadWeights() reads the weights that `source` names in one of the ways above. Throws Error
// (kCheckpoint).
struct Weights {
  // Returns the path. If best_metric is not empty, the text ", the best METRIC" follows the path.
  std::string Name() const;

  std::string path;  // the file or checkpoint from which the weights were read
  // The metric by which the weights are the run's best, if RUN or RUN@best selected them for that reason. Otherwise
  // empty.
  std::string best_metric;
  std::string graph{};  // the value of kGraphOfWeights; empty: the file has none
  TensorsByName tensors;
};
Weights ReadWeights(const std::string& source);

// Returns the value of kGraphOfWeights in the metadata of the file `path`; empty if the file has none. Throws Error
// (kCheckpoint).
std::string GraphOfWeights(const std::string& path, int own_names);

// Returns the mean of each floating-point tensor over all `weights`, in the tensor's dtype. Tensors of other dtypes are
// taken from the last element of `weights`. Throws Error (kCheckpoint).
TensorsByName MeanOf(const std::vector<Weights>& weights);

}  // namespace lockstep
