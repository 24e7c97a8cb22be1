#include "use/submission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "data/tables/csv_spelling.h"

namespace lockstep {
namespace {

// Instead of a sample's index: several samples have this name, or none has it.
constexpr int64_t kSeveral = -1;
constexpr int64_t kNone = -2;

// Maps the names of samples to their indices.
using Samples = std::unordered_map<std::string, int64_t>;

// Returns the index of the sample `id`, or else of the sample whose id has the same value. `decimal` is the decimal
// sign of `id`.
int64_t Find(const Samples& samples, const Samples& by_value, const ColumnKeys& key_of,
             const std::string& id, CsvDecimal decimal) {
  if (const auto same = samples.find(id); same != samples.end()) return same->second;
  const auto found = by_value.find(key_of(id, decimal));
  return found == by_value.end() ? kNone : found->second;
}

// Returns the first few names, for an error message.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> some(names.begin(), names.begin() + std::min(names.size(), kMost));
  return fmt::format("{}{}", fmt::join(some, ", "), names.size() > kMost ? ", ..." : "");
}

// Returns for each column the index of the class whose name follows `prefix` in the column's name. Returns nothing if a
// column has no such class, or two have the same.
std::optional<std::vector<int64_t>> IndicesAfter(const std::string& prefix,
                                                 const std::vector<std::string>& columns,
                                                 const std::vector<std::string>& names) {
  std::unordered_map<std::string, int64_t> left;
  for (const std::string& name : names) left.emplace(prefix + name, std::ssize(left));
  std::vector<int64_t> indices;
  for (const std::string& column : columns) {
    const auto found = left.find(column);
    if (found == left.end()) return std::nullopt;
    indices.push_back(found->second);
    left.erase(found);
  }
  return indices;
}

}  // namespace

Submission::Submission(std::string path, const Outputs& outputs, bool probabilities,
                       const DecimalRule& rule)
    : path_(std::move(path)), rule_(rule), sample_(ReadCsvTextTable(path_)) {
  const std::vector<CsvTextColumn>& sample = sample_.columns;
  if (sample.size() < 2) {
    throw DataError("{}: a sample submission has a column of ids and at least one to fill in",
                    path_);
  }
  if (TextsOf(0).empty()) throw DataError("{}: the sample submission has no rows", path_);
  for (const CsvTextColumn& column : sample) {
    DecimalSigns signs;
    for (const std::string& text : column.texts) signs.Add(text);
    decimals_.push_back(signs.Found(sample_.delimiter));
  }
  const bool has_classes = outputs.task == Task::kClassification;
  if (has_classes && sample.size() == 2) {
    columns_.push_back(OnlyClassColumn(outputs, probabilities));
    return;
  }
  const size_t wanted = sample.size() - 1;
  if (wanted != outputs.names.size()) {
    throw DataError("{}: {} column{} to fill in, and the run predicts {} ({})", path_, wanted,
                    wanted == 1 ? "" : "s", outputs.names.size(), Some(outputs.names));
  }
  const std::vector<int64_t> indices = IndicesOf(outputs);
  for (size_t i = 1; i < sample.size(); ++i) {
    const bool as_fraction = has_classes || probabilities || HoldsFractions(i);
    columns_.push_back({.what = outputs.task == Task::kRegression ? What::kNumber
                                : as_fraction                     ? What::kProbability
                                                                  : What::kYesOrNo,
                        .index = indices[i - 1]});
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    for (size_t other = 0; other < i; ++other) {
      if (columns_[i].index != columns_[other].index) continue;
      throw DataError("{}: columns \"{}\" and \"{}\" are both for \"{}\"", path_,
                      sample[other + 1].name, sample[i + 1].name, outputs.names[columns_[i].index]);
    }
  }
}

bool Submission::HoldsFractions(size_t i) const {
  return std::ranges::any_of(
      TextsOf(i), [&](const std::string& text) { return HasFraction(text, decimals_[i]); });
}

Submission::Column Submission::OnlyClassColumn(const Outputs& outputs, bool probabilities) {
  const CsvTextColumn& column = sample_.columns[1];
  if (probabilities || HoldsFractions(1)) {
    if (outputs.names.size() != 2) {
      throw DataError(
          "{}: column \"{}\" alone cannot hold the probabilities of {} classes: it needs a column "
          "for each ({})",
          path_, column.name, outputs.names.size(), Some(outputs.names));
    }
    return {.what = What::kProbability, .index = 1};
  }
  const TextIndex classes(outputs.names, rule_);
  for (const std::string& text : column.texts) {
    if (classes.FindSame(text) >= 0) continue;
    if (const int64_t found = classes.Find(text, decimals_[1]); found >= 0) {
      if (class_names_.empty()) {
        for (const std::string& name : outputs.names) {
          class_names_.emplace_back(WithoutZeroFraction(name));
        }
      }
      class_names_[found] = text;
      continue;
    }
    throw DataError(
        "{}: column \"{}\" holds \"{:.40}\", which is none of the run's classes ({}): write one of "
        "them there, or a fraction such as 0.5 for probabilities",
        path_, column.name, text, Some(outputs.names));
  }
  return {.what = What::kLabel};
}

std::vector<int64_t> Submission::IndicesOf(const Outputs& outputs) const {
  std::vector<std::string> columns;
  for (size_t i = 1; i < sample_.columns.size(); ++i) columns.push_back(sample_.columns[i].name);
  if (outputs.task == Task::kClassification) {
    for (const std::string& name : outputs.names) {
      if (columns.front() != name && !columns.front().ends_with("_" + name)) continue;
      const std::string prefix = columns.front().substr(0, columns.front().size() - name.size());
      if (const auto indices = IndicesAfter(prefix, columns, outputs.names)) return *indices;
    }
  }
  std::vector<int64_t> indices;
  for (size_t i = 1; i < sample_.columns.size(); ++i) indices.push_back(IndexOf(i, outputs));
  return indices;
}

int64_t Submission::IndexOf(size_t i, const Outputs& outputs) const {
  const std::vector<std::string>& names = outputs.names;
  const std::string& column = sample_.columns[i].name;
  const auto place = [&](const auto& found) { return found - names.begin(); };
  const auto same = std::ranges::find(names, column);
  if (same != names.end()) return place(same);
  if (outputs.task == Task::kClassification) {
    auto longest = names.end();
    for (auto name = names.begin(); name != names.end(); ++name) {
      const bool is_longer = longest == names.end() || name->size() > longest->size();
      if (column.ends_with("_" + *name) && is_longer) longest = name;
    }
    if (longest != names.end()) return place(longest);
  } else if (!outputs.have_names || names.size() == 1) {
    return static_cast<int64_t>(i) - 1;
  }
  throw DataError("{}: column \"{}\" is none of what the run predicts ({}){}", path_, column,
                  Some(names), DidYouMean(column, names));
}

void Submission::Match(const std::vector<std::string>& ids, bool are_files) {
  Samples samples;
  Samples by_value;  // ids of tables: 200.0 is 200
  const ColumnKeys key_of(ids, rule_);
  const auto add = [](Samples& to, std::string name, int64_t sample) {
    const auto [at, is_new] = to.try_emplace(std::move(name), sample);
    if (!is_new && at->second != sample) at->second = kSeveral;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto sample = static_cast<int64_t>(i);
    add(samples, ids[i], sample);
    if (!are_files) {
      add(by_value, key_of(ids[i]), sample);
      continue;
    }
    const std::string name = ids[i].substr(ids[i].rfind('/') + 1);
    add(samples, name, sample);
    add(samples, name.substr(0, name.rfind('.')), sample);
  }
  std::vector<bool> is_sent(ids.size());
  rows_.clear();
  for (const std::string& id : TextsOf(0)) {
    const int64_t sample = Find(samples, by_value, key_of, id, decimals_[0]);
    if (sample == kNone) {
      throw DataError("{}: {} \"{:.80}\" is not among the samples of --input", path_, id_name(),
                      id);
    }
    if (sample == kSeveral) {
      throw DataError("{}: several samples of --input have the {} \"{:.80}\"", path_, id_name(),
                      id);
    }
    if (is_sent[sample]) {
      throw DataError("{}: {} \"{:.80}\" is there twice", path_, id_name(), id);
    }
    is_sent[sample] = true;
    rows_.push_back(sample);
  }
  const auto left = std::ranges::find(is_sent, false);
  if (left != is_sent.end()) {
    throw DataError("{}: lacks {} \"{:.80}\", which --input has", path_, id_name(),
                    ids[left - is_sent.begin()]);
  }
}

PredictionTable Submission::Table(const Outputs& outputs) const {
  PredictionTable table{.rows = static_cast<int64_t>(rows_.size()), .columns = {}};
  Outputs named = outputs;
  if (!class_names_.empty()) named.names = class_names_;
  table.columns.push_back(
      {.name = id_name(), .cell = [this](int64_t row) { return TextsOf(0)[row]; }});
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string& name = sample_.columns[i + 1].name;
    const int64_t index = columns_[i].index;
    PredictionColumn column;
    switch (columns_[i].what) {
      case What::kLabel:
        column = LabelColumn(named, name);
        break;
      case What::kProbability:
        column = ProbabilityColumn(outputs, name, index);
        break;
      case What::kNumber:
        column = NumberColumn(outputs, name, index);
        break;
      case What::kYesOrNo:
        column = YesOrNoColumn(outputs, name, index);
        break;
    }
    const bool has_comma =
        columns_[i].what != What::kLabel && decimals_[i + 1] != CsvDecimal::kPoint;
    column.cell = [this, has_comma, of = std::move(column.cell)](int64_t row) {
      std::string cell = of(rows_[row]);
      if (has_comma) std::ranges::replace(cell, '.', ',');
      return cell;
    };
    table.columns.push_back(std::move(column));
  }
  return table;
}

std::string Submission::Contents() const {
  const auto name_of = [](What what) {
    switch (what) {
      case What::kLabel:
        return "label";
      case What::kProbability:
        return "probability";
      case What::kYesOrNo:
        return "0 or 1";
      case What::kNumber:
        return "number";
    }
    return "";
  };
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(columns_.size(), kMost); ++i) {
    text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", sample_.columns[i + 1].name,
                        name_of(columns_[i].what));
  }
  return text + (columns_.size() > kMost ? ", ..." : "");
}

}  // namespace lockstep
