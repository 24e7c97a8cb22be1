// Drafts a config for a table, with an mlp on its columns.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/dataset/split.h"
#include "data/tables/csv_delimiter.h"
#include "prepare/new/draft.h"
#include "prepare/new/plan_table.h"

namespace lockstep {
namespace {

constexpr double kHeldBack = 0.2;
using Kind = ColumnPlan::Kind;

TableSketch ReadSubmission(const std::string& path) {
  TableSketch sample = ReadSampleSketch(path);
  if (sample.columns.size() > 1) return sample;
  throw DataError("{}: a sample submission has a column of ids and at least one to fill in", path);
}

std::vector<std::string> NamesOf(const TablePlan& plan, Kind kind) {
  std::vector<std::string> names;
  for (const ColumnPlan& column : plan.columns) {
    if (column.kind == kind) names.push_back(column.name);
  }
  return names;
}

// Returns the first few names, for a line on the terminal.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  const size_t shown = std::min(names.size(), kShown);
  return fmt::format("{}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

class TableDraft {
 public:
  TableDraft(const FoundData& data, const NewRequest& request)
      : data_(data), request_(request), train_(ReadTableSketch(data.train[0])) {
    if (!data.test.empty()) test_ = ReadTestSketch(data.test[0], train_);
    if (!data.submission.empty()) {
      submission_ = ReadSubmission(data.submission);
    }
    plan_ = PlanTable({.train = train_,
                       .test = test_ ? &*test_ : nullptr,
                       .submission = submission_ ? &*submission_ : nullptr,
                       .labels = request.labels,
                       .task = request.task,
                       .held_back = kHeldBack});
    training_rows_ = plan_.rows - HeldBackOf(plan_.rows, kHeldBack);
    outputs_ = plan_.task == LearnTask::kClassification ? plan_.classes
                                                        : static_cast<int64_t>(plan_.labels.size());
    recipe_ = RecipeOfTable(plan_, training_rows_, outputs_);
  }

  Draft Make() {
    BeginConfig(request_,
                fmt::format("the {} of {}", Count(plan_.rows, "row"), NameOfFile(train_.path)),
                config_);
    WriteData();
    config_.Blank();
    WriteModel();
    config_.Blank();
    WriteLoss();
    WriteTraining(recipe_, training_rows_, config_);
    Draft draft{.config = config_.text(), .found = Found(), .next = Next()};
    return draft;
  }

 private:
  bool has_header() const { return train_.dialect.header; }

  void WriteData() {
    config_.Open("data");
    WriteFiles(data_, request_, config_);
    WriteHeldBack(plan_.rows, kHeldBack, config_);
    if (plan_.has_dates) {
      config_.Comment(
          "The rows have dates. If later rows are to be predicted from earlier ones, put the last "
          "rows into a file of their own and name it as `validation` instead of "
          "validation_fraction.");
    }
    WriteFolds();
    config_.Line(fmt::format("task: {}", NameOf(plan_.task)), plan_.task_reason);
    if (plan_.task == LearnTask::kRegression) WriteStandardTargets(config_);
    config_.Open("csv");
    if (train_.dialect.delimiter != ',') {
      config_.Line(train_.dialect.delimiter == '\t'
                       ? "delimiter: \"\\t\""
                       : "delimiter: " + InQuotes(std::string(1, train_.dialect.delimiter)));
    }
    config_.Line(has_header() ? "header: true" : "header: false",
                 has_header() ? "" : "the first line is a row, so columns have numbers from 0");
    WriteLabels();
    WriteColumns();
    if (!plan_.missing.empty()) {
      config_.Comment(
          plan_.missing +
          ": the mean over the training rows takes the place of a number, and of a text a "
          "category of its own.");
      config_.Line("missing: MEAN");
    }
    if (recipe_.number_bins > 0) {
      config_.Line("scaling: QUANTILE", "numbers have a normal distribution, also with far values");
    } else {
      config_.Line("scaling: STANDARD", "numbers have mean 0 and standard deviation 1");
    }
    config_.Close();
    config_.Close();
  }

  void WriteFolds() {
    if (plan_.group.empty()) return;
    config_.Comment(fmt::format(
        "{}. With GROUP folds, which `lockstep train --folds 5` trains, all rows of one are in one "
        "fold, so the folds tell how well those that training has not seen are predicted; "
        "validation_fraction, without --folds, holds single rows back. If the rows to predict are "
        "of the same ones, leave these folds out, and take the column as a category.",
        plan_.group_reason));
    config_.Line(fmt::format("folds {{ by: GROUP group: {} }}", InQuotes(plan_.group)));
  }

  void WriteLabels() {
    config_.Comment(
        fmt::format("The label{}: {}.", plan_.labels.size() == 1 ? "" : "s", plan_.label_reason));
    if (has_header()) {
      config_.Line("label: " + ListInQuotes(plan_.labels));
    } else {
      config_.Line("label_column: " + plan_.labels[0]);
      if (plan_.labels.size() > 1)
        config_.Line(fmt::format("label_columns: {}", plan_.labels.size()));
    }
    if (plan_.label_names)
      config_.Line("label_names: true", "the classes are not the numbers 0, 1, 2 and so on");
  }

  void WriteColumns() {
    // Neighbouring columns with the same reason share a line.
    constexpr size_t kMostOfALine = 12;
    std::vector<std::pair<std::string, std::vector<std::string>>> ignored;
    for (const ColumnPlan& column : plan_.columns) {
      if (column.kind != Kind::kIgnored) continue;
      if (ignored.empty() || ignored.back().first != column.reason ||
          ignored.back().second.size() == kMostOfALine) {
        ignored.push_back({column.reason, {}});
      }
      ignored.back().second.push_back(column.name);
    }
    for (const std::string& spelling : plan_.spellings) config_.Comment(spelling + ".");
    if (!ignored.empty()) config_.Comment("Columns that are left out, and why:");
    for (const auto& [reason, names] : ignored)
      config_.Line("ignore: " + ListInQuotes(names), reason);
    for (const ColumnPlan& column : plan_.columns) {
      if (column.kind != Kind::kCategory) continue;
      config_.Line(
          "category: " + InQuotes(column.name),
          column.remark.empty()
              ? fmt::format("{} different values{}", column.categories,
                            column.missing > 0 ? ", one of which is that there is none" : "")
              : column.remark);
    }
    if (plan_.category_min_rows > 1) {
      config_.Line(fmt::format("category_min_rows: {}", plan_.category_min_rows),
                   "values that fewer training rows have are one category, and so are new ones");
    }
    for (const ColumnPlan& column : plan_.columns) {
      if (column.kind != Kind::kDate) continue;
      config_.Line("date: " + InQuotes(column.name),
                   fmt::format("becomes the days since 1970, and the places in the year{} as sine "
                               "and cosine",
                               column.has_times ? ", the week and the day" : " and the week"));
    }
  }

  void WriteModel() {
    config_.Comment(fmt::format("{} of a row, {} to train on, {}.", Count(plan_.inputs, "input"),
                                Count(training_rows_, "row"), CountOutputs(plan_.task, outputs_)));
    const std::string hidden = fmt::format("hidden: [{}]", fmt::join(recipe_.hidden, ", "));
    const std::string dropout = "dropout: " + AsSetting(recipe_.dropout);
    config_.Open("model");
    if (recipe_.members > 0) {
      config_.Line("name: \"tabm\"", "an ensemble of perceptrons that share their weights");
      config_.Open("tabm");
      config_.Line(fmt::format("members: {}", recipe_.members));
      config_.Line(hidden);
      config_.Line(dropout);
      if (recipe_.number_bins > 0) {
        config_.Line(fmt::format("number_bins: {}", recipe_.number_bins),
                     "so that thresholds are found soon");
      }
    } else {
      config_.Line("name: \"mlp\"");
      config_.Open("mlp");
      config_.Line(hidden);
      config_.Line("batch_norm: true");
      config_.Line(dropout);
    }
    config_.Close();
    config_.Close();
  }

  void WriteLoss() {
    constexpr double kRare = 0.2;
    if (plan_.task == LearnTask::kRegression ||
        plan_.rarest * static_cast<double>(plan_.classes) >= kRare * 2) {
      return;
    }
    if (plan_.task == LearnTask::kMultiLabel && plan_.rarest >= kRare / 2) return;
    config_.Comment(
        fmt::format("The rarest {} has {:.1f} % of the rows. If each is to count the same, "
                    "whatever its share (balanced "
                    "accuracy, macro F1), take loss {{ balanced: true }}. Without it probabilities "
                    "are right as they are.",
                    plan_.task == LearnTask::kMultiLabel ? "label" : "class", 100 * plan_.rarest));
  }

  std::vector<std::string> Found() const {
    std::vector<std::string> lines;
    std::string what;
    switch (plan_.task) {
      case LearnTask::kClassification:
        what = Count(plan_.classes, "class") + " of";
        break;
      case LearnTask::kMultiLabel:
        what = "labels";
        break;
      case LearnTask::kRegression:
        what = "numbers of";
        break;
    }
    lines.push_back(fmt::format("{}: {}, {}; {} {}{} ({})", NameOfFile(train_.path),
                                Count(plan_.rows, "row"), Count(plan_.inputs, "input"), what,
                                has_header() ? "" : "column ", Some(plan_.labels),
                                plan_.label_reason));
    const auto left_out = NamesOf(plan_, Kind::kIgnored);
    if (!left_out.empty())
      lines.push_back("left out: " + Some(left_out) + " (the config says why)");
    if (test_ && test_->dialect.delimiter != train_.dialect.delimiter) {
      lines.push_back(
          fmt::format("note: {} has a {} between cells, and {} a {}", NameOfFile(test_->path),
                      NameOfDelimiter(test_->dialect.delimiter), NameOfFile(train_.path),
                      NameOfDelimiter(train_.dialect.delimiter)));
    }
    for (const std::string& note : plan_.notes) lines.push_back("note: " + note);
    return lines;
  }

  std::vector<std::string> Next() const {
    std::vector<std::string> commands{TrainCommand(request_) + " --folds 5"};
    commands.push_back(test_ ? PredictCommand(request_, data_) : EvaluateCommand(request_, {}));
    return commands;
  }

  const FoundData& data_;
  const NewRequest& request_;
  TableSketch train_;
  std::optional<TableSketch> test_;
  std::optional<TableSketch> submission_;
  TablePlan plan_;
  int64_t training_rows_ = 0;
  int64_t outputs_ = 0;
  Recipe recipe_;
  ConfigText config_;
};

}  // namespace

Draft DraftForTable(const FoundData& data, const NewRequest& request) {
  return TableDraft(data, request).Make();
}

}  // namespace lockstep
