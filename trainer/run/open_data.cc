#include "trainer/run/open_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "config/formats/csv_columns.h"
#include "config/formats/division.h"
#include "config/formats/formats.h"
#include "config/schema/fields.h"
#include "data/dataset/classes_of.h"
#include "data/dataset/skip_bad.h"
#include "data/dataset/standardized_targets.h"
#include "data/images/kept_bytes.h"
#include "data/tables/csv_number.h"
#include "trainer/run/balanced_weights.h"

namespace lockstep {
namespace {

Task TaskOf(const config::Data& config) {
  if (PredictsTokens(config)) return Task::kLanguage;
  switch (config.task()) {
    case config::Data::CLASSIFICATION:
      return Task::kClassification;
    case config::Data::MULTI_LABEL:
      return Task::kMultiLabel;
    case config::Data::REGRESSION:
      return Task::kRegression;
    case config::Data::SEGMENTATION:
      return Task::kSegmentation;
  }
  throw BugError("data.task {}", static_cast<int>(config.task()));
}

// Returns `dataset`, in which unreadable samples are replaced by others if data.bad_samples says so. Call it for the
// training part and the validation part separately, so that a training sample is never replaced by a validation sample,
// and a validation sample never by a training sample.
std::shared_ptr<const Dataset> WithoutBad(const config::Config& config,
                                          std::shared_ptr<const Dataset> dataset) {
  const config::BadSamples& bad = config.data().bad_samples();
  if (bad.policy() == config::BadSamples::STOP) return dataset;
  return std::make_shared<SkipBad>(std::move(dataset), bad.limit(), config.seed());
}

// Returns the data set without random augmentation, as evaluation reads it.
std::shared_ptr<const Dataset> AsEvaluated(const std::shared_ptr<const Dataset>& dataset) {
  std::shared_ptr<const Dataset> plain = dataset->Plain();
  return plain ? plain : dataset;
}

// Returns the name that errors use for the data: the first of `files`, or, if there are none, the name of the user's
// own data set.
std::string SourceName(const std::vector<std::string>& files, const config::Data& data) {
  return files.empty() ? data.own().name() : files.front();
}

// Returns the keys by which Divide() divides samples into training and validation: the classes, for a classification.
// Groups are not among the keys, because a format that has groups divides its samples itself (OpenForTraining()).
DivisionKeys KeysOf(const Dataset& dataset) {
  if (dataset.spec().task != Task::kClassification) return {};
  return {.classes = [&dataset] { return ClassesOf(dataset); }};
}

// Returns `dataset`, with standardized targets if data.standardize_targets is set.
std::shared_ptr<const Dataset> WithStandardTargets(const config::Data& data,
                                                   std::shared_ptr<const Dataset> dataset) {
  if (!data.standardize_targets()) return dataset;
  TargetMoments moments{.mean{data.target_mean().begin(), data.target_mean().end()},
                        .std{data.target_std().begin(), data.target_std().end()}};
  const auto count = static_cast<int64_t>(moments.mean.size());
  if (count != dataset->spec().classes) {
    throw UsageError("data.target_mean: {} numbers where {} are learnt: leave it out", count,
                     dataset->spec().classes);
  }
  return std::make_shared<StandardizedTargets>(std::move(dataset), std::move(moments));
}

// Sets target_mean and target_std of `data` to the moments of the training targets, if data.standardize_targets asks
// for them and they are not set.
void FitTargets(const Dataset& train, config::Data& data) {
  if (!data.standardize_targets() || data.target_mean_size() > 0) return;
  const TargetMoments moments = MomentsOfTargets(train);
  data.mutable_target_mean()->Assign(moments.mean.begin(), moments.mean.end());
  data.mutable_target_std()->Assign(moments.std.begin(), moments.std.end());
}

// Returns the object that draws the training samples of an epoch, or null if an epoch takes each sample once. `request`
// is the request that opened the training files.
std::shared_ptr<const WeightedDraws> DrawsOf(const OpenRequest& request, const Dataset& train) {
  const config::Sampling& sampling = request.config.data().sampling();
  std::vector<double> weights;
  switch (sampling.by()) {
    case config::Sampling::ONCE:
      return nullptr;
    case config::Sampling::BALANCED: {
      const std::vector<int64_t> classes = ClassesOf(train);
      std::vector<double> counts(train.spec().classes);
      for (const int64_t of_class : classes) ++counts.at(of_class);
      for (const int64_t of_class : classes) weights.push_back(1 / counts[of_class]);
      break;
    }
    case config::Sampling::WEIGHTED: {
      constexpr char kField[] = "data.sampling.column";
      const std::vector<std::string> texts =
          std::move(FormatOf(request.config.data())
                        .ReadColumns(request, {sampling.column()}, kField)
                        .front());
      DecimalSigns signs;
      for (const std::string& text : texts) signs.Add(text);
      const CsvDecimal decimal = DecimalRuleOf(request.config.data().csv()).For(signs);
      for (int64_t i = 0; i < train.size(); ++i) {
        const int64_t row = train.NumberInFiles(i);
        double weight = 0;
        const bool is_number = ParseNumber(texts.at(row), decimal, weight);
        weights.push_back(weight);
        if (is_number) continue;
        throw DataError("{}: row {} (from 0) of {} has \"{:.40}\" where a number is expected",
                        kField, row, request.files.front(), texts[row]);
      }
      break;
    }
  }
  return std::make_shared<const WeightedDraws>(weights, request.config.seed());
}

std::string ShapeText(const SampleSpec& spec) {
  return fmt::format("[{}]", fmt::join(spec.shape, ", "));
}

// Opens the files of `request` as a data set without random augmentation, whose samples must have the shape of
// `request.expected`. Appends the data set's remarks to `remarks`. Throws Error.
std::shared_ptr<const Dataset> OpenLike(const OpenRequest& request,
                                        std::vector<std::string>& remarks) {
  const config::Data& data = request.config.data();
  const auto opened = FormatOf(data).Open(request);
  std::ranges::copy(opened->Remarks(), std::back_inserter(remarks));
  const auto dataset = AsEvaluated(opened);
  if (dataset->spec().shape != request.expected.shape) {
    throw DataError("{}: samples of shape {} where the model was made for {}",
                    SourceName(request.files, data), ShapeText(dataset->spec()),
                    ShapeText(request.expected));
  }
  // For predictions an unreadable sample must not be replaced by another sample.
  return WithStandardTargets(
      data, request.label_optional ? dataset : WithoutBad(request.config, dataset));
}

}  // namespace

SampleSpec SpecOf(const config::Data& config) {
  SampleSpec spec{.shape = {config.input_shape().begin(), config.input_shape().end()},
                  .classes = config.classes(),
                  .task = TaskOf(config)};
  if (HoldsTokens(config)) spec.dtype = at::kLong;
  if (HoldsPixels(config)) spec.dtype = at::kByte;
  FormatOf(config).Describe(config, spec);
  return spec;
}

TrainingData OpenTrainingData(const config::Config& given, const Datasets& datasets,
                              const World& world) {
  config::Config config = given;  // is completed below with values from the files
  OpenRequest request{
      .config = config,
      .files = ListOf(given.data().train()),
      .expected = SpecOf(given.data()),
      .budget = std::make_shared<MemoryBudget>(given.data().images().cache_mib() << 20),
      .datasets = datasets,
      .device = world.device,
      .cores = world.cores};
  // The training files are opened without an expected shape; Resolved() compares their shape with data.input_shape.
  request.expected.shape.clear();
  TrainingData opened{.data = given.data(), .kept = request.budget};
  const Format& format = FormatOf(given.data());
  auto [all, split] = format.OpenForTraining(request, opened.data);
  *config.mutable_data() = opened.data;
  const config::Data& data = config.data();
  opened.remarks = all->Remarks();
  if (all->spec().task == Task::kClassification && all->spec().classes == 1) {
    opened.remarks.push_back(
        fmt::format("{}: all samples are of one class: there is nothing to learn",
                    data.train_size() > 0 ? data.train(0) : "data"));
  }
  if (!split) split = Divide(config, all->size(), KeysOf(*all));
  if (split) {
    const auto part = [&](const std::shared_ptr<const Dataset>& whole, std::vector<int64_t> rows) {
      return WithoutBad(config, std::make_shared<Subset>(whole, std::move(rows)));
    };
    opened.train = part(all, std::move(split->train));
    opened.validation = part(AsEvaluated(all), std::move(split->validation));
  } else {
    opened.train = WithoutBad(config, all);
  }
  opened.draws = DrawsOf(request, *opened.train);
  FitTargets(*opened.train, opened.data);
  *config.mutable_data() = opened.data;
  opened.train = WithStandardTargets(data, std::move(opened.train));
  if (opened.validation) {
    opened.validation = WithStandardTargets(data, std::move(opened.validation));
  }
  if (data.validation_size() > 0) {
    request.files = ListOf(data.validation());
    request.expected = all->spec();
    opened.validation = OpenLike(request, opened.remarks);
  }
  return opened;
}

config::Config Resolved(config::Config config, const TrainingData& training) {
  const SampleSpec& spec = training.train->spec();
  config::Data& data = *config.mutable_data();
  if (data.input_shape_size() > 0 && SpecOf(data).shape != spec.shape) {
    throw DataError("{}: samples of shape {} where data.input_shape says [{}]",
                    SourceName(ListOf(data.train()), data), ShapeText(spec),
                    fmt::join(data.input_shape(), ", "));
  }
  data = training.data;
  data.mutable_input_shape()->Assign(spec.shape.begin(), spec.shape.end());
  data.set_classes(spec.classes);
  SetBalancedWeights(config, *training.train);
  RequireWeight(config, *training.train);
  return config;
}

std::shared_ptr<const Dataset> OpenFiles(const config::Config& config,
                                         const std::vector<std::string>& files,
                                         const SampleSpec& spec, bool label_optional,
                                         const Datasets& datasets, const World& world,
                                         std::vector<std::string>& remarks) {
  return OpenLike({.config = config,
                   .files = files,
                   .expected = spec,
                   .label_optional = label_optional,
                   .budget = nullptr,
                   .datasets = datasets,
                   .device = world.device,
                   .cores = world.cores},
                  remarks);
}

std::vector<std::vector<std::string>> ReadFileColumns(const config::Config& config,
                                                      const std::vector<std::string>& files,
                                                      const std::vector<std::string>& columns,
                                                      std::string_view field) {
  const Datasets none;
  return FormatOf(config.data())
      .ReadColumns({.config = config,
                    .files = files,
                    .expected = SpecOf(config.data()),
                    .label_optional = true,
                    .budget = nullptr,
                    .datasets = none,
                    .device = at::kCPU},
                   columns, field);
}

}  // namespace lockstep
