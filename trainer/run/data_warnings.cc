#include "trainer/run/data_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/in_threads.h"
#include "config/formats/csv_columns.h"
#include "data/tables/csv.h"

namespace lockstep {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr int64_t kMostImages = 500;
constexpr auto kMostTime = std::chrono::seconds(10);  // time limit for trying images
constexpr int64_t kLeastSamples = 20;  // with fewer samples, patterns may occur by chance
constexpr size_t kMostNames = 3;       // the most names in one warning
constexpr float kFar = 30;             // greater absolute values count as unscaled
constexpr double kFewSamples = 0.1;    // the fraction of samples that may be outliers
constexpr double kRounding = 1e-3;     // relative error of differences between float32 values

// A numeric feature, and statistics of its values so far.
struct Feature {
  int64_t number;  // index in a sample's input
  std::string name;
  bool is_date = false;
  float least = INFINITY;
  float greatest = -INFINITY;
  int64_t far = 0;  // the number of values whose absolute value is greater than kFar
  float first = 0;
  int64_t first_sample = 0;
  double step = 0;     // change of the value per sample, between the first two samples
  bool counts = true;  // whether the change per sample was the same so far, and not 0

  void Add(float value, int64_t sample, int64_t count_before) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    far += std::abs(value) > kFar;
    if (count_before == 0) {
      first = value;
      first_sample = sample;
      return;
    }
    const double step_here = (value - first) / static_cast<double>(sample - first_sample);
    if (count_before == 1) step = step_here;
    counts = counts && step != 0 && std::abs(step_here - step) <= kRounding * std::abs(step);
  }
};

// Returns a Feature for each column of numbers, and for the day number of each column of dates. Leaves out categories,
// and the sines and cosines that are made from dates. If the data is no table, returns a Feature for each of the
// `count` numbers of an input.
std::vector<Feature> FeaturesOf(const config::Data& data, int64_t count) {
  std::vector<Feature> features;
  if (data.csv().column_size() == 0) {
    for (int64_t i = 0; i < count; ++i) {
      features.push_back({.number = i, .name = fmt::format("number {}", i)});
    }
    return features;
  }
  int64_t number = 0;
  for (const CsvColumn& column : ColumnsOf(data.csv())) {
    if (!column.is_category()) {
      features.push_back(
          {.number = number,
           .name = column.name.empty() ? fmt::format("feature {}", number) : column.name,
           .is_date = column.dates != CsvDates::kNone});
    }
    number += column.inputs();
  }
  return features;
}

// Returns a text with the first kMostNames names and the number of further names: "a, b, c and 4 more".
std::string NamesText(const std::vector<std::string>& names) {
  const std::span shown(names.data(), std::min(names.size(), kMostNames));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

std::string SourceOf(const config::Data& data) {
  return data.train_size() > 0 ? data.train(0) : "data";
}

void LookAtFeatures(const config::Data& data, const Dataset& train,
                    std::vector<std::string>& warnings) {
  const SampleSpec& spec = train.spec();
  const int64_t samples = std::min(train.size(), kMostBytes / spec.bytes());
  std::vector<Feature> features = FeaturesOf(data, spec.shape[0]);
  std::vector<float> input(spec.shape[0]);
  std::vector<std::byte> target(spec.target_bytes());
  for (int64_t i = 0; i < samples; ++i) {
    train.Read(i, /*epoch=*/0, reinterpret_cast<std::byte*>(input.data()), target.data());
    const int64_t sample = train.NumberInFiles(i);
    for (Feature& feature : features) feature.Add(input[feature.number], sample, i);
  }
  std::vector<std::string> constant, counting;
  const Feature* widest = nullptr;
  for (const Feature& feature : features) {
    if (feature.least == feature.greatest) {
      constant.push_back(feature.name);
    } else if (feature.counts && !feature.is_date) {  // a table may well have one row for each day
      counting.push_back(feature.name);
    } else if (widest == nullptr || feature.far > widest->far) {
      widest = &feature;
    }
  }
  const bool is_table = data.format() == config::Data::CSV;
  const char* const leave_out = is_table ? "leave it out with data.csv.ignore" : "leave it out";
  // Constant values are reported only for named columns. In an array, constant values may be pixels at the edge of
  // images.
  if (is_table && data.csv().header() && !constant.empty()) {
    warnings.push_back(fmt::format("{}: {} {} the same in all {} training samples: {}",
                                   SourceOf(data), NamesText(constant),
                                   constant.size() == 1 ? "is" : "are", samples, leave_out));
  }
  if (!counting.empty()) {
    warnings.push_back(fmt::format("{}: {} counts the samples, as an id does: if it is one, {}",
                                   SourceOf(data), NamesText(counting), leave_out));
  }
  const double few = kFewSamples * static_cast<double>(samples);
  if (widest == nullptr || static_cast<double>(widest->far) <= few) return;
  const std::string range =
      fmt::format("{} is from {} to {}", widest->name, widest->least, widest->greatest);
  if (is_table && data.csv().scaling() != config::Csv::NONE) {
    warnings.push_back(
        fmt::format("{}: data.csv.scaling: {} leaves features far from 0, {}: set it to QUANTILE",
                    SourceOf(data), config::Csv::Scaling_Name(data.csv().scaling()), range));
    return;
  }
  warnings.push_back(fmt::format("{}: features are not scaled, {}: {}", SourceOf(data), range,
                                 is_table ? "set data.csv.scaling: STANDARD" : "scale them"));
}

// Warns of columns that have more categories than half the number of samples. A text that occurs in only one row gives
// no information about other rows.
void LookAtCategories(const config::Data& data, int64_t samples,
                      std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  for (const config::Csv::Column& column : data.csv().column()) {
    if (2 * int64_t{column.category_size()} <= samples) continue;
    const std::string name = column.name().empty() ? "a column" : column.name();
    names.push_back(fmt::format("{} has {}", name, column.category_size()));
  }
  if (names.empty()) return;
  warnings.push_back(fmt::format(
      "{}: {} different texts in {} training samples, as free text and ids have: leave it out with "
      "data.csv.ignore, or set data.csv.category_min_rows",
      SourceOf(data), NamesText(names), samples));
}

void LookForRepeatedSamples(const config::Data& data, const Dataset& train,
                            const Dataset& validation, std::vector<std::string>& warnings) {
  const int64_t bytes = train.spec().bytes();
  if ((train.size() + validation.size()) > kMostBytes / bytes) return;
  std::vector<std::byte> input(bytes);
  std::vector<std::byte> target(train.spec().target_bytes());
  const auto read = [&](const Dataset& from, int64_t i) {
    from.Read(i, /*epoch=*/0, input.data(), target.data());
    return std::string_view(reinterpret_cast<const char*>(input.data()), input.size());
  };
  std::unordered_set<size_t> trained;  // hashes of the inputs
  for (int64_t i = 0; i < train.size(); ++i) {
    trained.insert(std::hash<std::string_view>()(read(train, i)));
  }
  int64_t repeated = 0;
  int64_t first = 0;
  for (int64_t i = 0; i < validation.size(); ++i) {
    if (!trained.contains(std::hash<std::string_view>()(read(validation, i)))) continue;
    if (repeated++ == 0) first = validation.NumberInFiles(i);
  }
  if (repeated == 0) return;
  warnings.push_back(
      fmt::format("{}: {} of {} validation samples are in the training set, too, such as number {} "
                  "(from 0): if rows are repeated, what validation says is too good",
                  data.validation_size() > 0 ? data.validation(0) : SourceOf(data), repeated,
                  validation.size(), first));
}

// Reads up to kMostImages evenly spaced images of `validation`, as an evaluation would, for at most kMostTime. Adds a
// warning if one of them cannot be read.
void LookForUnreadableImages(const Dataset& validation, std::vector<std::string>& warnings) {
  const int64_t most = std::min(validation.size(), kMostImages);
  // If the data set reads several samples at once (on a GPU), one thread is enough.
  const int threads = validation.samples_at_once() > 1 ? 1 : ReadingThreads();
  std::vector<std::string> errors(most);
  std::atomic<int64_t> tried = 0;
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  InThreads(threads, most, [&](int64_t i) {
    if (std::chrono::steady_clock::now() > end) return;
    ++tried;
    std::vector<std::byte> input(validation.spec().bytes());
    std::vector<std::byte> target(validation.spec().target_bytes());
    try {
      validation.Read(i * validation.size() / most, /*epoch=*/0, input.data(), target.data());
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kData) throw;
      errors[i] = error.what();
    }
  });
  const auto is_error = [](const std::string& error) { return !error.empty(); };
  const auto first = std::ranges::find_if(errors, is_error);
  if (first == errors.end()) return;
  warnings.push_back(fmt::format(
      "{}; of {} validation images that were tried {} cannot be read: an evaluation stops "
      "the run there: mend or remove them, or set data.bad_samples {{ policy: SKIP }}",
      *first, tried.load(), std::ranges::count_if(errors, is_error)));
}

}  // namespace

std::vector<std::string> DataWarnings(const config::Data& data, const Dataset& train,
                                      const Dataset* validation) {
  std::vector<std::string> warnings;
  const bool stops_at_bad = data.bad_samples().policy() == config::BadSamples::STOP;
  if (data.format() == config::Data::IMAGES && validation != nullptr && stops_at_bad) {
    LookForUnreadableImages(*validation, warnings);
  }
  const bool is_table = data.format() == config::Data::CSV;
  if (!is_table && data.format() != config::Data::NPY) return warnings;
  const SampleSpec& spec = train.spec();
  const bool has_features = spec.dtype == at::kFloat && spec.shape.size() == 1;
  if (has_features && train.size() >= kLeastSamples) LookAtFeatures(data, train, warnings);
  if (train.size() >= kLeastSamples) LookAtCategories(data, train.size(), warnings);
  if (validation != nullptr) LookForRepeatedSamples(data, train, *validation, warnings);
  return warnings;
}

}  // namespace lockstep
