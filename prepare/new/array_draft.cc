// Drafts a config for NumPy arrays, MNIST's files and CIFAR-10's batches.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/moments.h"
#include "data/arrays/cifar10.h"
#include "data/arrays/mnist.h"
#include "data/arrays/npy.h"
#include "data/dataset/split.h"
#include "prepare/new/draft.h"

namespace lockstep {
namespace {

constexpr double kHeldBack = 0.1;
constexpr char kModelFile[] = "texts.lsm";  // what the user exports for token numbers
constexpr int64_t kLooked = 1000;           // the most samples that statistics are taken from
constexpr size_t kMostClasses = 1000;

// The opened samples, and how the config must read them.
struct Reading {
  const char* format = "NPY";
  bool pixels = false;
  bool tokens = false;  // the inputs are token numbers of texts
  int64_t greatest_token = 0;
  LearnTask task = LearnTask::kClassification;
  std::string task_reason;
  std::shared_ptr<const Dataset> samples;
};

// Returns whether an array holds images: unsigned bytes that format NPY reads as images of 1, 3 or 4 channels.
bool IsPixels(const NpyInfo& info) {
  const std::optional<PixelLayout> layout = PixelLayoutOf(info);
  if (!layout) return false;
  const int64_t channels = layout->shape[0];
  return channels == 1 || channels == 3 || channels == 4;
}

// Returns whether the targets, which are those of the file `path`, are a mask for each image.
bool AreMasks(const NpyInfo& inputs, const NpyInfo& targets, const std::string& path) {
  return targets.shape.size() >= 3 && inputs.shape.size() >= 3 && HoldsIntegers(path);
}

std::shared_ptr<const Dataset> OpenNpy(const std::vector<std::string>& files, const Reading& as,
                                       Task task) {
  return MapNpy({.inputs = files[0],
                 .targets = files[1],
                 .task = task,
                 .dtype = as.pixels   ? at::kByte
                          : as.tokens ? at::kLong
                                      : at::kFloat});
}

// Returns the greatest token if the inputs look like token numbers of texts, [samples, tokens] or [samples, inputs,
// tokens], and otherwise 0. Token numbers are integers from 0 that reach 1000, and neighbours in a text differ from
// each other as much as any two of its numbers do. Neighbours in a signal are alike, and the features of a table have
// ranges of their own. `samples` holds the inputs as float32, in which such integers are exact.
int64_t GreatestToken(const NpyInfo& info, const Dataset& samples) {
  constexpr int64_t kFewestTokens = 8, kMostInputs = 4;
  constexpr float kLeastVocabulary = 1000;
  constexpr double kAlike = 0.7, kOwnRange = 0.2;
  const bool has_rows = info.shape.size() == 3 && info.shape[1] <= kMostInputs;
  // Token numbers are stored as integers, and as wider ones than bytes and booleans.
  if (info.type[1] == 'f' || info.type.ends_with("1")) return 0;
  if ((info.shape.size() != 2 && !has_rows) || info.shape.back() < kFewestTokens) return 0;
  const int64_t length = info.shape.back();
  std::vector<float> input(samples.spec().bytes() / sizeof(float)), before;
  std::vector<std::byte> target(samples.spec().target_bytes());
  std::vector<float> greatest_at(length);
  float greatest = 0;
  double neighbours = 0, others = 0;
  const int64_t count = std::min(kLooked, samples.size());
  for (int64_t i = 0; i < count; ++i) {
    samples.Read(i * samples.size() / count, 0, reinterpret_cast<std::byte*>(input.data()),
                 target.data());
    for (int64_t at = 0; at < length; ++at) {
      if (input[at] < 0) return 0;
      greatest_at[at] = std::max(greatest_at[at], input[at]);
      greatest = std::max(greatest, input[at]);
      if (at > 0) neighbours += std::abs(input[at] - input[at - 1]);
      if (at > 0 && !before.empty()) others += std::abs(input[at] - before[length - at]);
    }
    before = input;
  }
  // A text may begin and end with a token of its own, and be short, so only most of the places need a great number.
  const int64_t with_small_range = std::ranges::count_if(
      greatest_at, [&](float number) { return number < kOwnRange * greatest; });
  const bool are_alike = neighbours < kAlike * others * count / std::max<int64_t>(1, count - 1);
  if (greatest < kLeastVocabulary || are_alike || 2 * with_small_range > length) return 0;
  return static_cast<int64_t>(greatest);
}

// Returns whether all targets are 0 or 1.
bool AreYesOrNo(const Dataset& samples) {
  std::vector<float> target(samples.spec().targets());
  for (int64_t i = 0; i < samples.size(); ++i) {
    samples.ReadTarget(i, reinterpret_cast<std::byte*>(target.data()));
    if (!std::ranges::all_of(target, [](float number) { return number == 0 || number == 1; }))
      return false;
  }
  return true;
}

// Returns whether the targets are classes: integers from 0, at most kMostClasses different ones, and at least three
// samples of each on average. With `without_gaps`, each integer up to the greatest must be there, as is usual for
// classes and not for measured numbers.
bool AreClasses(const Dataset& numbers, bool without_gaps) {
  constexpr int64_t kRowsOfAClass = 3;
  std::set<float> different;
  float target = 0;
  for (int64_t i = 0; i < numbers.size(); ++i) {
    numbers.ReadTarget(i, reinterpret_cast<std::byte*>(&target));
    different.insert(target);
    if (target < 0 || target != std::floor(target) || different.size() > kMostClasses) return false;
  }
  if (without_gaps && *different.rbegin() >= static_cast<float>(different.size())) return false;
  return static_cast<int64_t>(different.size()) * kRowsOfAClass <= numbers.size();
}

// Throws Error (kData) if a number of the inputs `path` is not finite: training would stop at its sample.
void RequireFinite(const std::string& path) {
  const std::optional<NpyElement> found = FindNotFinite(path);
  if (!found) return;
  throw DataError(
      "{}: sample {}: number {} is {}{}: fill it in (numpy.nan_to_num), or remove the sample", path,
      found->sample, found->number, found->text,
      std::isfinite(std::atof(found->text.c_str())) ? ", which is beyond float32" : "");
}

// Throws Error (kData) if most classes would have no sample: classes are counted from 0, so a model has an output for
// each number up to the greatest label. `numbers` are the samples with their labels as numbers.
void RequireFewGaps(const Dataset& numbers, const std::string& path) {
  std::set<float> labels;
  float label = 0;
  for (int64_t i = 0; i < numbers.size(); ++i) {
    numbers.ReadTarget(i, reinterpret_cast<std::byte*>(&label));
    labels.insert(label);
  }
  const float greatest = *labels.rbegin();
  if (greatest < kMostClasses || greatest < 2 * static_cast<float>(labels.size())) return;
  throw DataError(
      "{}: its labels are {} different numbers up to {:.0f}, and classes are counted from 0: "
      "number "
      "them (numpy.unique(y, return_inverse=True)[1]), or give --task regression",
      path, labels.size(), greatest);
}

// Throws Error (kData) if all samples have the same target.
void RequireDifferentTargets(const Dataset& samples, const std::string& path) {
  const size_t bytes = samples.spec().target_bytes();
  std::vector<std::byte> first(bytes);
  std::vector<std::byte> target(bytes);
  for (int64_t i = 0; i < samples.size(); ++i) {
    samples.ReadTarget(i, (i == 0 ? first : target).data());
    if (i > 0 && target != first) return;
  }
  throw DataError("{}: all samples have the same target, so there is nothing to learn", path);
}

Reading ReadNpy(const FoundData& data, const NewRequest& request) {
  const NpyInfo inputs = ReadNpyInfo(data.train[0]);
  const NpyInfo targets = ReadNpyInfo(data.train[1]);
  if (AreMasks(inputs, targets, data.train[1])) {
    throw DataError(
        "{}: masks [{}], a class for each pixel, and no built-in model predicts pixels: export a "
        "PyTorch module such as a U-Net with `python -m lockstep.export`, and give it a config "
        "with task: "
        "SEGMENTATION (docs/models.md has one)",
        data.train[1], fmt::join(targets.shape, ", "));
  }
  Reading reading{.pixels = IsPixels(inputs)};
  const bool one =
      targets.shape.size() == 1 || (targets.shape.size() == 2 && targets.shape[1] == 1);
  const auto open = [&](Task task) { return OpenNpy(data.train, reading, task); };
  if (!reading.pixels) {
    reading.greatest_token = GreatestToken(inputs, *open(Task::kRegression));
    reading.tokens = reading.greatest_token > 0;
  }
  const bool are_floats = targets.type[1] == 'f';
  for (const auto* files : {&data.train, &data.validation}) {
    if (!files->empty()) RequireFinite(files->front());
  }
  if (request.task) {
    reading.task = *request.task;
    reading.task_reason = "as --task says";
  } else if (one && AreClasses(*open(Task::kRegression), /*without_gaps=*/are_floats)) {
    reading.task = LearnTask::kClassification;
    reading.task_reason = "the targets are integers from 0";
  } else if (!one && AreYesOrNo(*open(Task::kRegression))) {
    reading.task = LearnTask::kMultiLabel;
    reading.task_reason = "the targets are 0 or 1";
  } else {
    reading.task = LearnTask::kRegression;
    reading.task_reason = "the targets are numbers";
  }
  if (one && reading.task == LearnTask::kClassification) {
    RequireFewGaps(*open(Task::kRegression), data.train[1]);
  }
  reading.samples = open(reading.task == LearnTask::kClassification ? Task::kClassification
                         : reading.task == LearnTask::kMultiLabel   ? Task::kMultiLabel
                                                                    : Task::kRegression);
  if (reading.samples->size() < 10) {
    throw DataError("{}: {}: give at least 10", data.train[0],
                    Count(reading.samples->size(), "sample"));
  }
  return reading;
}

Reading ReadSamples(const FoundData& data, const NewRequest& request) {
  switch (data.kind) {
    case DataKind::kMnist:
      return {.format = "MNIST",
              .pixels = true,
              .samples = ReadMnist({.images = data.train[0], .labels = data.train[1]})};
    case DataKind::kCifar10:
      return {.format = "CIFAR10", .pixels = true, .samples = ReadCifar10({.files = data.train})};
    default:
      return ReadNpy(data, request);
  }
}

class ArrayDraft {
 public:
  ArrayDraft(const FoundData& data, const NewRequest& request)
      : data_(data),
        request_(request),
        reading_(ReadSamples(data, request)),
        samples_(*reading_.samples) {
    RequireDifferentTargets(samples_, data.train.back());
    const int64_t size = samples_.size();
    training_samples_ = size - (data.validation.empty() ? HeldBackOf(size, kHeldBack) : 0);
    const SampleSpec& spec = samples_.spec();
    is_image_ =
        !reading_.tokens && spec.shape.size() == 3 && spec.shape[1] >= 8 && spec.shape[2] >= 8;
    recipe_ = is_image_ ? RecipeOfImages(training_samples_)
                        : RecipeOfNumbers(training_samples_, Inputs(), reading_.task, spec.classes);
    if (reading_.tokens) {
      // The library transformers fine-tunes with this rate by default, and with 3 epochs.
      constexpr double kFineTuning = 5e-5;
      recipe_.rate = kFineTuning;
      recipe_.weight_decay = 0.01;
    }
    if (is_image_ && reading_.task != LearnTask::kClassification) {
      recipe_.metric = reading_.task == LearnTask::kRegression ? "rmse" : "auc";
    }
  }

  Draft Make() {
    const SampleSpec& spec = samples_.spec();
    const std::string what =
        fmt::format("{} of [{}]", Count(samples_.size(), "sample"), fmt::join(spec.shape, ", "));
    BeginConfig(request_, what, config_);
    WriteData();
    config_.Blank();
    WriteModel();
    config_.Blank();
    WriteTraining(recipe_, training_samples_, config_);
    Draft draft{.config = config_.text(),
                .found = {fmt::format("{}: {}, {}", NameOfFile(data_.train[0]), what,
                                      CountOutputs(reading_.task, spec.classes))},
                .next = {TrainCommand(request_), EvaluateCommand(request_, data_.test)}};
    if (reading_.tokens) {
      draft.found.push_back(
          fmt::format("note: integers from 0 to {}, which are taken for token numbers",
                      reading_.greatest_token));
      draft.next.insert(draft.next.begin(), ExportCommand());
      draft.stand_in = data_.train[0];
    }
    return draft;
  }

 private:
  int64_t Inputs() const {
    int64_t inputs = 1;
    for (const int64_t size : samples_.spec().shape) inputs *= size;
    return inputs;
  }

  void WriteData() {
    config_.Open("data");
    config_.Line(std::string("format: ") + reading_.format);
    WriteFiles(data_, request_, config_);
    if (data_.validation.empty()) WriteHeldBack(samples_.size(), kHeldBack, config_);
    if (data_.kind == DataKind::kNpy) {
      config_.Line(fmt::format("task: {}", NameOf(reading_.task)), reading_.task_reason);
      if (reading_.task == LearnTask::kRegression) WriteStandardTargets(config_);
      if (reading_.tokens) {
        config_.Line("npy { kind: TEXTS }",
                     fmt::format("token numbers up to {}; without this line they are numbers",
                                 reading_.greatest_token));
      }
      if (reading_.pixels)
        config_.Line("npy { kind: PIXELS }", "unsigned bytes, which become 0 to 1");
    }
    if (reading_.pixels) WriteColours();
    config_.Close();
  }

  // Writes the means and standard deviations of the channels, from at most kLooked images.
  void WriteColours() {
    const SampleSpec& spec = samples_.spec();
    const int64_t channels = spec.shape[0];
    const int64_t pixels = spec.shape[1] * spec.shape[2];
    std::vector<Moments> moments(channels);
    std::vector<std::byte> input(spec.bytes());
    std::vector<std::byte> target(spec.target_bytes());
    const int64_t count = std::min(kLooked, samples_.size());
    for (int64_t i = 0; i < count; ++i) {
      samples_.Read(i * samples_.size() / count, 0, input.data(), target.data());
      for (int64_t at = 0; at < channels * pixels; ++at) {
        const int64_t channel = spec.channels_last ? at % channels : at / pixels;
        moments[channel].Add(static_cast<double>(input[at]) / 255);
      }
    }
    std::vector<double> means, stds;
    for (const Moments& of : moments) {
      means.push_back(of.mean());
      stds.push_back(of.std());
    }
    config_.Comment(
        fmt::format("Mean and standard deviation of each channel, of {}.", Count(count, "image")));
    config_.Line(fmt::format("mean: [{:.4f}]", fmt::join(means, ", ")));
    config_.Line(fmt::format("std: [{:.4f}]", fmt::join(stds, ", ")));
  }

  void WriteModel() {
    const SampleSpec& spec = samples_.spec();
    config_.Comment(fmt::format("{} to train on.", Count(training_samples_, "sample")));
    if (reading_.tokens) return WriteImported();
    config_.Open("model");
    if (is_image_ && (spec.shape[1] > 40 || data_.kind == DataKind::kCifar10)) {
      config_.Line("name: \"resnet\"");
      config_.Line("resnet { depth: 18 }");
    } else if (is_image_) {
      config_.Line("name: \"convnet\"", "two convolutions, for images as small as these");
    } else if (spec.shape.size() == 2) {
      config_.Line("name: \"lstm\"", "each sample is a row of numbers for each time step");
    } else {
      WriteMlp();
    }
    config_.Close();
  }

  // Returns the command that exports a model of the tokens. The models of hf: take two inputs, tokens and their mask.
  std::string ExportCommand() const {
    const SampleSpec& spec = samples_.spec();
    const bool has_mask = spec.shape.size() == 2 && spec.shape[0] == 2;
    const std::filesystem::path folder = std::filesystem::path(request_.output).parent_path();
    const std::string outputs =
        has_mask ? fmt::format(" --classes {}", std::max<int64_t>(spec.classes, 1)) : "";
    return fmt::format("python3 -m lockstep.export {}{} --length {} --output {}",
                       has_mask ? "hf:FOLDER" : "MODULE:FUNCTION", outputs, spec.shape.back(),
                       (folder / kModelFile).string());
  }

  void WriteImported() {
    config_.Comment(fmt::format(
        "No built-in model learns targets of texts: export one of Hugging Face, which takes tokens "
        "and their mask, [samples, 2, tokens], or one of your own (docs/models.md): {}",
        ExportCommand()));
    config_.Open("model");
    config_.Line("name: \"imported\"");
    config_.Line(fmt::format("imported {{ file: \"{}\" }}", kModelFile));
    config_.Close();
  }

  void WriteMlp() {
    config_.Line("name: \"mlp\"");
    config_.Open("mlp");
    config_.Line(fmt::format("hidden: [{}]", fmt::join(recipe_.hidden, ", ")));
    config_.Line("batch_norm: true",
                 "arrays are taken as they are; features of one scale train better");
    config_.Line("dropout: " + AsSetting(recipe_.dropout));
    config_.Close();
  }

  const FoundData& data_;
  const NewRequest& request_;
  Reading reading_;
  const Dataset& samples_;
  bool is_image_ = false;
  int64_t training_samples_ = 0;
  Recipe recipe_;
  ConfigText config_;
};

}  // namespace

Draft DraftForArrays(const FoundData& data, const NewRequest& request) {
  return ArrayDraft(data, request).Make();
}

}  // namespace lockstep
