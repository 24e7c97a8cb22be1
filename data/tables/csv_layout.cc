#include "data/tables/csv_layout.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {
namespace {

using Kind = CsvRole::Kind;
using Numbers = std::unordered_map<std::string_view, int64_t>;

std::string Suggestion(const std::string& name, const std::vector<std::string>& header) {
  // Only some names are compared, because comparing two names takes time and memory in proportion to the product of
  // their lengths.
  constexpr size_t kLongest = 100;
  constexpr size_t kMost = 10000;
  if (name.size() > kLongest) return "";
  std::vector<std::string> candidates;
  for (const std::string& candidate : header) {
    if (candidate.size() <= kLongest && candidates.size() < kMost) candidates.push_back(candidate);
  }
  return DidYouMean(name, candidates);
}

// Maps each column's name to its number.
Numbers NumbersOf(const std::vector<std::string>& header, const std::string& path) {
  Numbers numbers;
  numbers.reserve(header.size());
  for (size_t i = 0; i < header.size(); ++i) {
    const auto [other, added] = numbers.try_emplace(header[i], i);
    if (!added) {
      throw DataError("{}: columns {} and {} have one name, \"{:.40}\": rename one", path,
                      other->second + 1, i + 1, header[i]);
    }
  }
  return numbers;
}

// Assigns a role to each column of a training file.
class Assignment {
 public:
  Assignment(const CsvOptions& options, const std::string& path, CsvLayout& layout)
      : options_(options),
        path_(path),
        layout_(layout),
        fields_(layout.roles.size()),
        finder_(layout.header, static_cast<int64_t>(layout.roles.size()), path) {}

  void Labels() {
    const int64_t first = options_.labels.empty() ? FirstLabel() : 0;
    for (int64_t i = 0; i < options_.LabelCount(); ++i) {
      const int64_t column =
          options_.labels.empty() ? first + i : finder_.Find(options_.labels[i], "data.csv.label");
      Give(column, {Kind::kLabel, static_cast<int32_t>(i)}, "the label");
    }
  }

  void Ignored() {
    for (const std::string& reference : options_.ignore) {
      Give(finder_.Find(reference, "data.csv.ignore"), {Kind::kIgnored}, "data.csv.ignore");
    }
  }

  void Features() {
    for (const std::string& reference : options_.category) {
      Give(finder_.Find(reference, "data.csv.category"), {Kind::kCategory}, "data.csv.category");
    }
    for (const std::string& reference : options_.date) {
      Give(finder_.Find(reference, "data.csv.date"), {Kind::kDate}, "data.csv.date");
    }
    int32_t features = 0;
    for (CsvRole& role : layout_.roles) {
      if (IsFeature(role)) role.index = features++;
    }
    if (features == 0) throw DataError("{}: no column is left to learn from", path_);
  }

 private:
  int64_t columns() const { return static_cast<int64_t>(layout_.roles.size()); }

  // Returns the number of the first label column, if the options give the label columns by number. Throws Error (kData)
  // if a label column is outside the table.
  int64_t FirstLabel() const {
    const int64_t first = options_.label_column + (options_.label_column < 0 ? columns() : 0);
    if (first >= 0 && first <= columns() - options_.label_columns) return first;
    throw DataError(
        "{}: {} label column{} from data.csv.label_column {} on: outside the {} columns", path_,
        options_.label_columns, options_.label_columns == 1 ? "" : "s", options_.label_column,
        columns());
  }

  void Give(int64_t column, CsvRole role, const char* field) {
    if (fields_[column] != nullptr) {
      throw DataError("{}: {} is given twice, as {} and as {}", path_, layout_.NameOf(column),
                      fields_[column], field);
    }
    fields_[column] = field;
    layout_.roles[column] = role;
  }

  const CsvOptions& options_;
  const std::string& path_;
  CsvLayout& layout_;
  std::vector<const char*> fields_;  // the option that refers to each column; null: none
  CsvColumnFinder finder_;
};

// Returns the layout of a file that is not a training file. `header` must hold the names of the training files'
// columns, in any order. The ignored columns may be missing. If labels are optional, the label columns may be missing,
// but only all together.
CsvLayout MatchNames(const CsvOptions& options, const std::string& path,
                     std::vector<std::string> header) {
  CsvLayout layout{.roles = std::vector<CsvRole>(header.size(), {Kind::kIgnored}),
                   .header = std::move(header)};
  const Numbers numbers = NumbersOf(layout.header, path);
  const auto columns = static_cast<int64_t>(layout.roles.size());
  std::vector<bool> known(columns);
  for (const std::string& name : options.ignore) {
    if (const auto at = numbers.find(name); at != numbers.end()) known[at->second] = true;
  }
  for (size_t i = 0; i < options.columns.size(); ++i) {
    const CsvColumn& trained = options.columns[i];
    const auto at = numbers.find(trained.name);
    if (at == numbers.end()) {
      throw DataError("{}: no column \"{}\", which training had{}", path, trained.name,
                      Suggestion(trained.name, layout.header));
    }
    if (known[at->second]) {
      throw DataError("{}: data.csv.column has \"{}\" twice, or data.csv.ignore has it, too", path,
                      trained.name);
    }
    known[at->second] = true;
    layout.roles[at->second] = {KindOf(trained), static_cast<int32_t>(i)};
  }
  const auto is_here = [&](const std::string& name) { return numbers.contains(name); };
  layout.labelled =
      !options.label_optional || std::any_of(options.labels.begin(), options.labels.end(), is_here);
  for (size_t i = 0; layout.labelled && i < options.labels.size(); ++i) {
    const std::string& name = options.labels[i];
    const auto at = numbers.find(name);
    if (at == numbers.end()) {
      throw DataError("{}: no column \"{}\", {}{}", path, name,
                      options.labels.size() == 1 ? "the label" : "one of the labels",
                      Suggestion(name, layout.header));
    }
    if (known[at->second]) {
      throw DataError("{}: data.csv.label has \"{}\", which data.csv.column or ignore has, too",
                      path, name);
    }
    known[at->second] = true;
    layout.roles[at->second] = {Kind::kLabel, static_cast<int32_t>(i)};
  }
  const auto unknown = std::find(known.begin(), known.end(), false) - known.begin();
  if (unknown < columns) {
    throw DataError("{}: training did not have {}: remove it, or add it to data.csv.ignore", path,
                    layout.NameOf(unknown));
  }
  return layout;
}

}  // namespace

CsvRole::Kind KindOf(const CsvColumn& trained) {
  if (trained.is_category()) return Kind::kCategory;
  return trained.dates == CsvDates::kNone ? Kind::kNumber : Kind::kDate;
}

int64_t CsvLayout::features() const { return std::count_if(roles.begin(), roles.end(), IsFeature); }

std::string CsvLayout::NameOf(int64_t column) const {
  return fmt::format("column {}", column + 1) +
         (header.empty() ? "" : fmt::format(" ({:.40})", header[column]));
}

std::string CsvLayout::Reference(int64_t column) const {
  return header.empty() ? std::to_string(column) : header[column];
}

CsvColumnFinder::CsvColumnFinder(const std::vector<std::string>& header, int64_t columns,
                                 const std::string& path)
    : header_(header), columns_(columns), path_(path), numbers_(NumbersOf(header, path)) {}

int64_t CsvColumnFinder::Find(const std::string& reference, std::string_view field) const {
  if (!header_.empty()) {
    const auto found = numbers_.find(reference);
    if (found != numbers_.end()) return found->second;
    throw DataError("{}: {}: the header has no column \"{}\"{}", path_, field, reference,
                    Suggestion(reference, header_));
  }
  int64_t number = -1;
  const char* end = reference.data() + reference.size();
  const auto [stop, error] = std::from_chars(reference.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0 && number < columns_) return number;
  throw DataError("{}: {}: no column \"{}\": without a header they are 0 to {}", path_, field,
                  reference, columns_ - 1);
}

int64_t WidthWithoutLabels(const CsvOptions& options) {
  const int64_t features =
      options.columns.empty() ? options.features : static_cast<int64_t>(options.columns.size());
  return features + static_cast<int64_t>(options.ignore.size());
}

CsvLayout LayoutInTraining(const CsvOptions& options, const std::string& path,
                           std::vector<std::string> header, int64_t columns) {
  CsvLayout layout{.roles = std::vector<CsvRole>(columns), .header = std::move(header)};
  Assignment assignment(options, path, layout);
  assignment.Labels();
  assignment.Ignored();
  assignment.Features();
  return layout;
}

CsvLayout LayoutAsTrained(const CsvOptions& options, const std::string& path,
                          std::vector<std::string> header, int64_t columns, int64_t line) {
  if (!header.empty()) return MatchNames(options, path, std::move(header));
  const int64_t unlabelled = WidthWithoutLabels(options);
  const int64_t labelled = unlabelled + options.LabelCount();
  const bool no_labels = options.label_optional && columns == unlabelled;
  if (columns != labelled && !no_labels) {
    throw DataError("{}:{}: {} columns where {} are expected", path, line, columns, labelled);
  }
  CsvLayout layout = LayoutInTraining(options, path, {}, labelled);
  if (no_labels) {
    std::erase_if(layout.roles, [](const CsvRole& role) { return role.kind == Kind::kLabel; });
    layout.labelled = false;
  }
  return layout;
}

}  // namespace lockstep
