#include "prepare/new/draft.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/shell_text.h"
#include "data/dataset/split.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Returns a file's path for the config: relative to the config's folder, or absolute if the user gave an absolute path
// and `request.output` is relative.
std::string PathInConfig(const NewRequest& request, const std::string& file) {
  if (fs::path(file).is_absolute() && fs::path(request.output).is_relative()) return file;
  const fs::path folder = fs::absolute(request.output).parent_path();
  return fs::absolute(file)
      .lexically_normal()
      .lexically_proximate(folder.lexically_normal())
      .string();
}

std::vector<std::string> PathsInConfig(const NewRequest& request,
                                       const std::vector<std::string>& files) {
  std::vector<std::string> paths;
  for (const std::string& file : files) paths.push_back(PathInConfig(request, file));
  return paths;
}

std::string RunOf(const NewRequest& request) {
  return ShellText({"runs/" + fs::path(request.output).stem().string()});
}

}  // namespace

constexpr char kTextIsNoTable[] =
    "if the file is text and no table, lockstep prepare tokens makes a file of tokens, for which "
    "lockstep new writes a config (lockstep help text)";

Draft DraftConfig(const NewRequest& request) {
  const FoundData data = FindData(request.data, request.test);
  if (data.kind != DataKind::kTable) {
    if (!request.labels.empty())
      throw UsageError("--label: is for tables, and {} is none", request.data);
    if (request.task && data.kind != DataKind::kNpy) {
      throw UsageError("--task: is for tables and arrays, and {} is none", request.data);
    }
  }
  switch (data.kind) {
    case DataKind::kTable:
      try {
        return DraftForTable(data, request);
      } catch (const Error& error) {
        if (!IsTextFile(request.data)) throw;
        throw Error(error.status(), fmt::format("{}; {}", error.what(), kTextIsNoTable));
      }
    case DataKind::kImages:
      return DraftForImages(data, request);
    case DataKind::kMasks:
      return DraftForMasks(data, request);
    case DataKind::kTokens:
      return DraftForTokens(data, request);
    default:
      return DraftForArrays(data, request);
  }
}

const char* NameOf(LearnTask task) {
  switch (task) {
    case LearnTask::kClassification:
      return "CLASSIFICATION";
    case LearnTask::kMultiLabel:
      return "MULTI_LABEL";
    case LearnTask::kRegression:
      return "REGRESSION";
  }
  return "";
}

std::string CountOutputs(LearnTask task, int64_t outputs) {
  return Count(outputs, task == LearnTask::kClassification ? "class"
                        : task == LearnTask::kMultiLabel   ? "label"
                                                           : "number");
}

void BeginConfig(const NewRequest& request, const std::string& what, ConfigText& config) {
  config.Comment(
      fmt::format("Written by `lockstep new {}` from {}. Change what you know better; "
                  "`lockstep config --template` prints every field with its meaning.",
                  ShellText({request.data}), what));
}

void WriteHeldBack(int64_t samples, double fraction, ConfigText& config) {
  config.Line(fmt::format("validation_fraction: {}", fraction),
              fmt::format("{} of {} are held back to see which epoch is best",
                          HeldBackOf(samples, fraction), samples));
}

void WriteStandardTargets(ConfigText& config) {
  config.Line("standardize_targets: true", "so that numbers of any unit are learnt alike");
}

void WriteFiles(const FoundData& data, const NewRequest& request, ConfigText& config) {
  config.Line("train: " + ListInQuotes(PathsInConfig(request, data.train)));
  if (data.validation.empty()) return;
  config.Line("validation: " + ListInQuotes(PathsInConfig(request, data.validation)));
}

void WriteTraining(const Recipe& recipe, int64_t samples, ConfigText& config) {
  config.Open("optimizer");
  config.Line("type: ADAMW");
  config.Line("lr: " + AsSetting(recipe.rate),
              "`lockstep tune` finds the best rate for these data");
  config.Line("weight_decay: " + AsSetting(recipe.weight_decay));
  config.Line("no_decay: VECTORS", "biases and norms are left alone");
  config.Close();
  config.Open("schedule");
  config.Line("type: COSINE", "the rate falls to 0 by the last epoch");
  config.Line(fmt::format("warmup_steps: {}", recipe.warmup_steps), "and grows to lr before");
  config.Close();
  config.Line(fmt::format("global_batch: {}", recipe.batch),
              fmt::format("{} of {} samples to train on are {} an epoch", recipe.batch, samples,
                          Count(CeilDivide(samples, recipe.batch), "step")));
  config.Line(fmt::format("epochs: {}", recipe.epochs));
  config.Open("early_stopping");
  config.Comment(
      "The epoch with the best value on the rows that are held back is kept, and evaluate, predict "
      "and export use it.");
  config.Line("metric: " + InQuotes(recipe.metric));
  config.Line(fmt::format("patience: {}", recipe.patience),
              "evaluations without a better one end the run");
  config.Close();
  config.Line("precision: AUTO", "16 bits on a GPU, FP32 on the CPU");
}

std::string TrainCommand(const NewRequest& request) {
  return "lockstep train " + ShellText({request.output});
}

std::string PredictCommand(const NewRequest& request, const FoundData& data) {
  const std::string input = data.test.empty() ? "FILE" : ShellText({data.test[0]});
  const std::string output = data.kind == DataKind::kMasks ? "predicted/"
                             : data.submission.empty()     ? "predictions.csv"
                                                           : "submission.csv";
  return fmt::format("lockstep predict {} --input {}{} --output {}", RunOf(request), input,
                     data.submission.empty() ? "" : " --submission " + ShellText({data.submission}),
                     output);
}

std::string EvaluateCommand(const NewRequest& request, const std::vector<std::string>& files) {
  std::string command = "lockstep evaluate " + RunOf(request);
  if (!files.empty()) command += " --input";
  for (const std::string& file : files) command += " " + ShellText({file});
  return command;
}

}  // namespace lockstep
