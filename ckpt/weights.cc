#include "ckpt/weights.h"

#include <ATen/ops/zeros_like.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "ckpt/saver.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The prefix of the averaged weights' names in a checkpoint's state.
constexpr std::string_view kAverage = "optimizer.average.";

// Returns the part of `average` that has the shape of `weight`. During training, matrices may have additional rows as
// padding, which are not among the model's saved weights.
at::Tensor AsSaved(at::Tensor average, const at::Tensor& weight) {
  for (int64_t i = 0; i < weight.dim(); ++i) average = average.narrow(i, 0, weight.size(i));
  return average.contiguous();
}

// Reads all weights in the safetensors file `path`. `own_names` is as for SafetensorsFile.
Weights WeightsIn(const std::string& path, int own_names) {
  return {.path = path,
          .graph = GraphOfWeights(path, own_names),
          .tensors = ReadSafetensors(path, own_names)};
}

// Reads the weights of a checkpoint. `is_best` says whether the checkpoint was selected because it is the run's best.
Weights WeightsOf(const Checkpoint& checkpoint, bool is_best) {
  const checkpoint::Manifest manifest = ReadManifest(checkpoint);
  RequireFiles(checkpoint, manifest);
  VerifyCheckpoint(checkpoint, manifest);
  Weights weights = WeightsIn(ModelFile(checkpoint), kInCheckpoint);
  weights.path = checkpoint.path;
  if (is_best) weights.best_metric = manifest.best_metric();
  for (const std::string& path : StateFiles(checkpoint, manifest)) {
    SafetensorsFile file(path, kInCheckpoint);
    for (const std::string& entry : file.names()) {
      if (!entry.starts_with(kAverage)) continue;
      const auto weight = weights.tensors.find(entry.substr(kAverage.size()));
      if (weight == weights.tensors.end()) {
        throw CheckpointError(
            "{}: {}: the averages lie in pieces of {} ranks (optimizer.shard), and only the run "
            "itself can join them: take its final weights, RUN@last",
            path, entry, manifest.ranks());
      }
      weight->second = AsSaved(file.Read(entry), weight->second);
    }
  }
  return weights;
}

// Returns whether a checkpoint is of a later step than the run's final weights. This happens if the run was continued
// after its end.
bool HasLaterCheckpoint(const std::string& run_dir) {
  const SafetensorsFile weights(RunWeightsPath(run_dir), kInRunFolder);
  const auto step = weights.metadata().find(kStepOfWeights);
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  return step != weights.metadata().end() && !checkpoints.empty() &&
         checkpoints.front().step > std::atoll(step->second.c_str());
}

std::vector<int64_t> StepsOf(const std::vector<Checkpoint>& checkpoints) {
  std::vector<int64_t> steps;
  for (const Checkpoint& checkpoint : checkpoints) steps.push_back(checkpoint.step);
  return steps;
}

bool IsLike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

}  // namespace

RunPoint ParseRunPoint(const std::string& text) {
  using Which = RunPoint::Which;
  const size_t at = text.rfind('@');
  if (at == std::string::npos || fs::exists(text)) return {text};
  const std::string run_dir = text.substr(0, at);
  const std::string_view point = std::string_view(text).substr(at + 1);
  if (point == "best") return {run_dir, Which::kBest};
  if (point == "last") return {run_dir, Which::kLast};
  int64_t step = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(point.data(), end, step);
  if (error != std::errc() || rest != end || step < 0) return {text};
  return {run_dir, Which::kStep, step};
}

Checkpoint FindCheckpoint(const std::string& point) {
  const RunPoint wanted = ParseRunPoint(point);
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(wanted.run_dir);
  if (checkpoints.empty()) throw CheckpointError("{}: no run with checkpoints", wanted.run_dir);
  if (wanted.which == RunPoint::Which::kBest) {
    if (const auto best = BestCheckpoint(wanted.run_dir)) return *best;
    throw CheckpointError(
        "{}: the run has no best checkpoint: train with checkpoint.keep_best, or name a step: {}",
        wanted.run_dir, fmt::join(StepsOf(checkpoints), ", "));
  }
  if (wanted.which != RunPoint::Which::kStep) return checkpoints.front();
  for (const Checkpoint& checkpoint : checkpoints) {
    if (checkpoint.step == wanted.step) return checkpoint;
  }
  throw CheckpointError("{}: there is no checkpoint of step {} (there are {})", wanted.run_dir,
                        wanted.step, fmt::join(StepsOf(checkpoints), ", "));
}

std::string RunWeightsPath(const std::string& run_dir) { return run_dir + "/weights.safetensors"; }

Weights ReadWeights(const std::string& source) {
  if (fs::is_regular_file(source)) return WeightsIn(source, kGivenByUser);
  const RunPoint point = ParseRunPoint(source);
  using Which = RunPoint::Which;
  std::optional<Checkpoint> best;
  if (point.which == Which::kBest) best = FindCheckpoint(source);
  if (point.which == Which::kUsual) best = BestCheckpoint(point.run_dir);
  if (best) return WeightsOf(*best, /*is_best=*/true);
  const std::string final_weights = RunWeightsPath(point.run_dir);
  if (point.which != Which::kStep && fs::exists(final_weights) &&
      !HasLaterCheckpoint(point.run_dir)) {
    return WeightsIn(final_weights, kInRunFolder);
  }
  return WeightsOf(FindCheckpoint(source), /*is_best=*/false);
}

std::string GraphOfWeights(const std::string& path, int own_names) {
  const SafetensorsFile file(path, own_names);
  const auto found = file.metadata().find(kGraphOfWeights);
  return found == file.metadata().end() ? "" : found->second;
}

std::string Weights::Name() const {
  return best_metric.empty() ? path : fmt::format("{}, the best {}", path, best_metric);
}

TensorsByName MeanOf(const std::vector<Weights>& weights) {
  TensorsByName means = weights.back().tensors;
  for (const Weights& one : weights) {
    for (const auto& [name, tensor] : one.tensors) {
      const auto other = means.find(name);
      if (other == means.end() || !IsLike(other->second, tensor)) {
        throw CheckpointError("{}: {} is not what it is in {}: they are of different models",
                              one.path, name, weights.back().path);
      }
    }
    if (one.tensors.size() != means.size()) {
      throw CheckpointError("{}: has {} tensors where {} has {}: they are of different models",
                            one.path, one.tensors.size(), weights.back().path, means.size());
    }
    const std::string& graph = weights.back().graph;
    if (!one.graph.empty() && !graph.empty() && one.graph != graph) {
      throw CheckpointError(
          "{}: were trained in another graph than {}: they are of different models", one.path,
          weights.back().path);
    }
  }
  for (auto& [name, mean] : means) {
    if (!mean.is_floating_point()) continue;
    at::Tensor sum = at::zeros_like(mean, at::TensorOptions(at::kDouble));
    for (const Weights& one : weights) sum.add_(one.tensors.at(name));
    mean = sum.div_(static_cast<double>(weights.size())).to(mean.scalar_type());
  }
  return means;
}

}  // namespace lockstep
