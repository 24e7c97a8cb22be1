#include "prepare/new/label_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/nearest.h"
#include "base/small_letters.h"
#include "data/tables/csv_number.h"
#include "prepare/new/names.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 10> kUsualLabels{
    "target",  "label",    "labels", "class",    "y",
    "outcome", "response", "output", "category", "diagnosis"};

// The integers of a label column are classes if there are at most kMostClassNumbers different ones, and at least
// kRowsOfAClass rows of each on average. Otherwise the integers are quantities, and the task is regression.
constexpr int64_t kMostClassNumbers = 20;
constexpr int64_t kRowsOfAClass = 3;

// Returns the sketch of a label column. If the column holds texts, all of them may be classes.
ColumnSketch LabelOf(const TablePlanRequest& request, int64_t column) {
  const ColumnSketch& label = request.train.columns[column];
  return label.texts() > 0 ? label.AsClasses() : label;
}

void FromUser(const TablePlanRequest& request, TablePlan& plan) {
  for (const std::string& label : request.labels) {
    if (request.train.Has(label)) continue;
    throw UsageError("--label {}: {} has no such column{}", label, request.train.path,
                     request.train.dialect.header
                         ? DidYouMean(label, request.train.names)
                         : fmt::format(": it has no header, so columns are 0 to {}",
                                       request.train.names.size() - 1));
  }
  for (size_t i = 1; i < request.labels.size(); ++i) {
    const std::string& label = request.labels[i];
    if (std::find(request.labels.begin(), request.labels.begin() + static_cast<int64_t>(i),
                  label) != request.labels.begin() + static_cast<int64_t>(i)) {
      throw UsageError("--label {} is given twice: leave one out", label);
    }
    // Without a header, the config can only give the number of the first label column and the number of labels.
    if (!request.train.dialect.header &&
        request.train.Find(label) != request.train.Find(request.labels[i - 1]) + 1) {
      throw UsageError(
          "--label {}: without a header several labels must be neighbours, in their order: put "
          "names into the first line of {}",
          label, request.train.path);
    }
  }
  plan.labels = request.labels;
  plan.label_reason = "as --label says";
}

// Returns the columns of the sample submission, except its first, that the table also has.
std::vector<std::string> InSubmission(const TablePlanRequest& request) {
  std::vector<std::string> names;
  if (request.submission == nullptr) return names;
  for (size_t i = 1; i < request.submission->names.size(); ++i) {
    const std::string& name = request.submission->names[i];
    if (request.train.Has(name)) names.push_back(name);
  }
  return names;
}

bool FromTest(const TablePlanRequest& request, TablePlan& plan) {
  if (request.test == nullptr || !request.train.dialect.header) return false;
  std::vector<std::string> lacking;
  for (const std::string& name : request.train.names) {
    if (!request.test->Has(name)) lacking.push_back(name);
  }
  const std::string test = NameOfFile(request.test->path);
  if (lacking.size() == 1) {
    plan.labels = lacking;
    plan.label_reason = fmt::format("the column that {} lacks", test);
    return true;
  }
  if (lacking.empty()) return false;
  std::vector<std::string> both;
  for (const std::string& name : InSubmission(request)) {
    if (std::ranges::find(lacking, name) != lacking.end()) both.push_back(name);
  }
  if (!both.empty()) {
    plan.labels = both;
    plan.label_reason =
        fmt::format("what {} lacks and {} has", test, NameOfFile(request.submission->path));
    return true;
  }
  for (const std::string_view usual : kUsualLabels) {
    for (const std::string& name : lacking) {
      if (InSmallLetters(name) != usual) continue;
      plan.labels = {name};
      plan.label_reason = fmt::format("of the {} columns that {} lacks the one with a usual name",
                                      lacking.size(), test);
      return true;
    }
  }
  plan.labels = {lacking.back()};
  plan.label_reason = fmt::format("the last of the {} columns that {} lacks", lacking.size(), test);
  return true;
}

bool FromSubmission(const TablePlanRequest& request, TablePlan& plan) {
  const std::vector<std::string> names = InSubmission(request);
  if (names.empty()) return false;
  plan.labels = names;
  plan.label_reason =
      fmt::format("{} has {}", NameOfFile(request.submission->path),
                  names.size() == 1 ? "it to be filled in" : "them to be filled in");
  return true;
}

bool FromUsualName(const TablePlanRequest& request, TablePlan& plan) {
  for (const std::string_view usual : kUsualLabels) {
    for (const std::string& name : request.train.names) {
      if (InSmallLetters(name) != usual) continue;
      plan.labels = {name};
      plan.label_reason = "by its name; --label NAME chooses another column";
      return true;
    }
  }
  return false;
}

// Returns whether the values are exactly the integers 0, 1, 2, ... without gaps, and no names such as 00 and 01.
bool AreClassNumbers(const ColumnSketch& column) {
  if (column.holds_padded_integers()) return false;
  std::set<double> numbers;
  for (const auto& [text, count] : column.values()) {
    double number = 0;
    if (!ParseNumber(text, column.decimal(), number)) return false;
    numbers.insert(number);
  }
  return column.holds_integers() && *numbers.begin() == 0 &&
         *numbers.rbegin() == static_cast<double>(numbers.size() - 1);
}

bool IsYesOrNo(const ColumnSketch& column) {
  if (column.holds_truths()) return true;
  return column.holds_integers() && column.texts() == 0 && column.least() >= 0 &&
         column.greatest() <= 1;
}

// Returns whether the sample submission has two columns, and the second column, which holds the predictions, has
// fractions.
bool WantsFractions(const TablePlanRequest& request) {
  if (request.submission == nullptr || request.submission->columns.size() != 2) return false;
  const ColumnSketch& column = request.submission->columns[1];
  return std::ranges::any_of(column.values(), [&](const auto& value) {
    return HasFraction(value.first, column.decimal());
  });
}

// Checks that each row has a label. Throws Error (kData) if one has none.
void RequireWhole(const TablePlanRequest& request, int64_t column) {
  const ColumnSketch label = LabelOf(request, column);
  if (label.missing() > 0) {
    throw DataError(
        "{}:{}: {}: {} of {} rows have no label: fill them in, or remove these rows (--label NAME "
        "chooses another column)",
        request.train.path, label.first_missing_line(), request.train.NameOf(column),
        label.missing(), label.rows());
  }
}

void RequireNumbers(const TablePlanRequest& request, int64_t column, const char* why) {
  const ColumnSketch& label = request.train.columns[column];
  if (label.texts() == 0) return;
  throw DataError("{}:{}: {}: \"{}\" is no number, and {}", request.train.path,
                  label.first_text_line(), request.train.NameOf(column), label.first_text(), why);
}

void SetClasses(const TablePlanRequest& request, int64_t column, TablePlan& plan) {
  const TableSketch& train = request.train;
  const ColumnSketch label = LabelOf(request, column);
  const auto different = static_cast<int64_t>(label.values().size());
  if (label.has_many_texts() || (label.texts() > 0 && 2 * different > label.rows())) {
    const ColumnSketch& cells = train.columns[column];
    if (2 * cells.texts() < cells.rows()) {
      RequireNumbers(request, column,
                     "most rows hold numbers there: mend it, or choose the label with --label "
                     "NAME");
    }
    throw DataError(
        "{}: {}: {} different values in {} rows are no classes: choose the label with --label "
        "NAME{}",
        train.path, train.NameOf(column),
        label.has_many_texts() ? "too many" : std::to_string(different), label.rows(),
        label.texts() == 0 ? ", or give --task regression" : "");
  }
  plan.task = LearnTask::kClassification;
  plan.classes = different;
  plan.label_names = !AreClassNumbers(label);
  int64_t least = label.rows(), most = 0;
  for (const auto& [text, count] : label.values()) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  plan.rarest = static_cast<double>(least) / static_cast<double>(label.rows());
  plan.commonest = static_cast<double>(most) / static_cast<double>(label.rows());
}

void SetNumbers(const TablePlanRequest& request, TablePlan& plan) {
  plan.task = LearnTask::kRegression;
  for (const std::string& name : plan.labels) {
    const int64_t column = request.train.Find(name);
    RequireNumbers(request, column,
                   "regression learns numbers: choose the label with --label NAME, or give --task "
                   "classification");
  }
}

void SetYesOrNo(const TablePlanRequest& request, TablePlan& plan) {
  plan.task = LearnTask::kMultiLabel;
  double least = 1;
  for (const std::string& name : plan.labels) {
    const int64_t column = request.train.Find(name);
    if (!IsYesOrNo(request.train.columns[column])) {
      throw DataError(
          "{}: {} holds other values than 0 and 1, or true and false: choose the labels with "
          "--label NAME",
          request.train.path, request.train.NameOf(column));
    }
    least = std::min(least, request.train.columns[column].mean());
  }
  plan.rarest = least;
}

void ChooseForOne(const TablePlanRequest& request, int64_t column, TablePlan& plan) {
  const ColumnSketch label = LabelOf(request, column);
  const auto different = static_cast<int64_t>(label.values().size());
  if (label.texts() > 0) {
    SetClasses(request, column, plan);
    plan.task_reason = fmt::format("{} different texts", different);
  } else if (!label.holds_integers()) {
    SetNumbers(request, plan);
    plan.task_reason = "numbers with fractions";
  } else if (different > 2 && WantsFractions(request)) {
    SetNumbers(request, plan);
    plan.task_reason = NameOfFile(request.submission->path) + " has fractions there";
  } else if (label.has_many_texts() ||
             (different > kMostClassNumbers && !label.holds_padded_integers()) ||
             different * kRowsOfAClass > label.rows()) {
    SetNumbers(request, plan);
    plan.task_reason =
        fmt::format("{} different integers; --task classification makes them classes",
                    label.has_many_texts() ? "many" : std::to_string(different));
  } else {
    SetClasses(request, column, plan);
    plan.task_reason =
        fmt::format("{} different integers{}", different,
                    different > 2 ? "; --task regression makes them quantities" : "");
  }
}

}  // namespace

void ChooseLabels(const TablePlanRequest& request, TablePlan& plan) {
  if (!request.labels.empty()) {
    FromUser(request, plan);
  } else if (!FromTest(request, plan) && !FromSubmission(request, plan) &&
             !FromUsualName(request, plan)) {
    plan.labels = {request.train.names.back()};
    plan.label_reason = "the last column; --label NAME chooses another";
  }
  for (const std::string& name : plan.labels) {
    const int64_t column = request.train.Find(name);
    const ColumnSketch label = LabelOf(request, column);
    RequireWhole(request, column);
    if (label.values().size() == 1) {
      throw DataError(
          "{}: {}: all rows have the label \"{:.40}\", so there is nothing to learn: choose the "
          "label with --label NAME",
          request.train.path, request.train.NameOf(column), label.values().begin()->first);
    }
  }
}

void ChooseTask(const TablePlanRequest& request, TablePlan& plan) {
  const int64_t first = request.train.Find(plan.labels.front());
  if (request.task) {
    plan.task_reason = "as --task says";
    switch (*request.task) {
      case LearnTask::kClassification:
        if (plan.labels.size() > 1) {
          throw UsageError(
              "--task classification has one label, and there are {} ({}): give --label NAME, or "
              "--task multi_label",
              plan.labels.size(), fmt::join(plan.labels, ", "));
        }
        return SetClasses(request, first, plan);
      case LearnTask::kMultiLabel:
        return SetYesOrNo(request, plan);
      case LearnTask::kRegression:
        return SetNumbers(request, plan);
    }
  }
  if (plan.labels.size() == 1) return ChooseForOne(request, first, plan);
  const bool all_yes_or_no = std::ranges::all_of(plan.labels, [&](const std::string& name) {
    return IsYesOrNo(request.train.columns[request.train.Find(name)]);
  });
  if (all_yes_or_no) {
    SetYesOrNo(request, plan);
    plan.task_reason = "columns of 0 and 1, or of true and false";
  } else {
    SetNumbers(request, plan);
    plan.task_reason = "columns of numbers";
  }
}

}  // namespace lockstep
