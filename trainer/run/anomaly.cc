#include "trainer/run/anomaly.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/printable_number.h"
#include "data/feed/sampler.h"
#include "trainer/run/input.h"
#include "trainer/run/run_folder.h"

namespace lockstep {
namespace {

// Returns the indices in the training set of all samples of `step` (counted from 1), of all ranks and all
// micro-batches.
std::vector<int64_t> SamplesOf(int64_t step, const config::Config& config,
                               const TrainingData& data) {
  Sampler sampler(SamplerOptionsFor(config, /*accumulation=*/1, data, /*rank=*/0,
                                    /*ranks=*/1));
  sampler.Seek(step - 1);
  return sampler.Next().indices;
}

// Looks for the first sample of `step` whose float32 input has a number that is not finite. Returns a text that names
// the sample and says what to do; empty if there is no such sample.
std::string SampleWithoutNumbers(int64_t step, const config::Config& config,
                                 const TrainingData& data) {
  const SampleSpec& spec = data.train->spec();
  if (spec.dtype != at::kFloat) return "";
  std::vector<float> input(spec.bytes() / sizeof(float));
  std::vector<std::byte> target(spec.target_bytes());
  for (const int64_t sample : SamplesOf(step, config, data)) {
    data.train->Read(sample, /*epoch=*/0, reinterpret_cast<std::byte*>(input.data()),
                     target.data());
    const auto bad = std::ranges::find_if(input, [](float x) { return !std::isfinite(x); });
    if (bad == input.end()) continue;
    return fmt::format("number {} of the input of sample {} in {} is {}: mend or remove it",
                       bad - input.begin(), data.train->NumberInFiles(sample),
                       config.data().train_size() > 0 ? config.data().train(0) : "data",
                       PrintableNumber(*bad));
  }
  return "";
}

void SaveAnomaly(int64_t step, const config::Config& config, const TrainingData& data) {
  std::vector<int64_t> samples = SamplesOf(step, config, data);
  for (int64_t& sample : samples) sample = data.train->NumberInFiles(sample);
  const nlohmann::ordered_json anomaly{{"step", step}, {"samples", samples}};
  WriteFileAtomically(AnomalyPath(config.run_dir()), anomaly.dump() + "\n");
}

}  // namespace

void EndForAnomaly(const Anomaly& anomaly, const config::Config& config, const TrainingData& data,
                   bool saves) {
  std::string saved;
  if (config.anomaly().policy() == config::Anomaly::STOP_AND_SAVE) {
    if (saves) SaveAnomaly(anomaly.step, config, data);
    saved = "; its samples are in " + AnomalyPath(config.run_dir());
  }
  const bool loss_is_bad = !std::isfinite(anomaly.loss);
  const std::string sample = SampleWithoutNumbers(anomaly.step, config, data);
  throw Error::OnEveryRank(
      ExitStatus::kUsage,
      fmt::format(
          "step {}: the {} is {}: {}{}", anomaly.step, loss_is_bad ? "loss" : "gradient's norm",
          PrintableNumber(loss_is_bad ? anomaly.loss : anomaly.grad_norm),
          sample.empty() ? "lower optimizer.lr or set optimizer.clip_norm" : sample, saved));
}

void EndForLossScale(int64_t step, double scale, int64_t skipped, const config::Config& config,
                     const TrainingData& data) {
  const std::string sample = SampleWithoutNumbers(step, config, data);
  throw Error::OnEveryRank(
      ExitStatus::kUsage,
      fmt::format(
          "step {}: the loss scale fell to {} because gradients were not finite {} times: {}", step,
          scale, skipped,
          sample.empty() ? "lower optimizer.lr, or set precision: BF16 or FP32" : sample));
}

}  // namespace lockstep
