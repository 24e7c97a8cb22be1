#include "prepare/new/plan_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "data/dataset/split.h"
#include "data/images/image_names.h"
#include "data/tables/csv_date.h"
#include "data/tables/csv_number.h"
#include "data/tables/csv_spelling.h"
#include "prepare/new/label_choice.h"
#include "prepare/new/names.h"

namespace lockstep {
namespace {

using Kind = ColumnPlan::Kind;

// Returns whether a text begins like a date: 2024-05-31 or 31.05.2024, with any of - / . between the numbers.
bool LooksLikeDate(const std::string& text) {
  size_t at = 0;
  const auto digits = [&](size_t least, size_t most) {
    size_t count = 0;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) ++at, ++count;
    return count >= least && count <= most;
  };
  const auto separator = [&] {
    return at < text.size() && std::string_view("-/.").find(text[at++]) != std::string_view::npos;
  };
  return digits(1, 4) && separator() && digits(1, 2) && separator() && digits(1, 4) &&
         text.size() >= 8;
}

class Planner {
 public:
  Planner(const TablePlanRequest& request, TablePlan& plan) : request_(request), plan_(plan) {}

  void PlanColumns() {
    for (size_t i = 0; i < request_.train.columns.size(); ++i) {
      ColumnPlan column{.name = request_.train.names[i]};
      column.missing = request_.train.columns[i].missing();
      if (std::ranges::find(plan_.labels, column.name) != plan_.labels.end()) {
        column.kind = Kind::kLabel;
      } else {
        Plan(static_cast<int64_t>(i), column);
      }
      if (column.kind == Kind::kNumber) ++plan_.numbers;
      if (column.kind == Kind::kDate) {
        plan_.numbers +=
            1 + DateCircleNumbers(column.has_times ? CsvDates::kTimes : CsvDates::kDays);
      }
      if (column.kind == Kind::kCategory) plan_.inputs += column.categories;
      plan_.columns.push_back(std::move(column));
    }
    plan_.inputs += plan_.numbers;
    if (plan_.inputs == 0) RefuseAll();
    for (size_t i = 0; i < plan_.columns.size(); ++i) NoteSpelling(i);
    plan_.missing = Missing();
  }

 private:
  static void Ignore(ColumnPlan& column, std::string reason) {
    column.kind = Kind::kIgnored;
    column.reason = std::move(reason);
  }

  static void IgnoreAsEmpty(const ColumnSketch& train, ColumnPlan& column) {
    Ignore(column,
           fmt::format("only {} of {} rows have a value there", train.present(), train.rows()));
  }

  // Adds a note that tells how the numbers of a column are read, if they are not in C's spelling.
  void NoteSpelling(size_t i) {
    const ColumnPlan& column = plan_.columns[i];
    const bool is_label = column.kind == Kind::kLabel && !plan_.label_names;
    if (column.kind != Kind::kNumber && !is_label) return;
    const DecimalSigns& signs = request_.train.signs[i];
    const CsvDecimal decimal = request_.train.columns[i].decimal();
    const std::string how = HowRead(signs, decimal, HowElse(signs, decimal));
    if (how.empty()) return;
    plan_.spellings.push_back(fmt::format("\"{:.40}\" holds numbers: {}", column.name, how));
    plan_.notes.push_back(plan_.spellings.back());
  }

  // Returns the column of the test file that corresponds to `column`, or null if there is none.
  const ColumnSketch* InTest(int64_t column) const {
    if (request_.test == nullptr) return nullptr;
    // Without a header, only the number of columns shows whether the test file has the labels.
    if (!request_.train.dialect.header) {
      const bool whole = request_.test->columns.size() == request_.train.columns.size();
      const int64_t label = request_.train.Find(plan_.labels.front());
      const int64_t place =
          whole || column < label ? column : column - static_cast<int64_t>(plan_.labels.size());
      return &request_.test->columns[place];
    }
    const int64_t place = request_.test->Find(request_.train.names[column]);
    return place < 0 ? nullptr : &request_.test->columns[place];
  }

  void Plan(int64_t i, ColumnPlan& column) {
    const ColumnSketch& train = request_.train.columns[i];
    const ColumnSketch* test = InTest(i);
    const std::string& name = column.name;
    if (request_.test != nullptr && test == nullptr) {
      return Ignore(column, NameOfFile(request_.test->path) + " has no such column");
    }
    if (request_.submission != nullptr && request_.train.dialect.header &&
        name == request_.submission->names[0]) {
      return Ignore(column, fmt::format("the first column of {}: it names the rows",
                                        NameOfFile(request_.submission->path)));
    }
    if (train.present() == 0) return Ignore(column, "no row has a value there");
    if (train.values().size() == 1 && train.missing() == 0) {
      return Ignore(column, fmt::format("all rows have the same value, {:.40}",
                                        train.values().begin()->first));
    }
    const bool is_numbers = train.texts() == 0 && (test == nullptr || test->texts() == 0);
    const bool all_differ = !train.repeats() && train.present() > 1;
    if (IsNameOfIds(name) && all_differ && (!is_numbers || train.holds_integers())) {
      return Ignore(column, "an id: all rows have different values");
    }
    if (PlanCodes(train, is_numbers, column)) return;
    constexpr int64_t kFewRows = 10;
    if (is_numbers && train.counts_rows() && train.rows() >= kFewRows) {
      return Ignore(column, "it counts the rows");
    }
    const bool is_dates = train.holds_dates() && (test == nullptr || test->holds_dates());
    if ((!is_numbers && !is_dates) || train.values().size() == 1)
      return PlanTexts(train, test, is_numbers, column);
    // A column is left out if at most `few` rows have a value, or if at most `few` rows have a value other than the
    // most common one. All of these few rows could be held back for validation, so that training would not see them.
    const int64_t few = std::min(HeldBackOf(train.rows(), request_.held_back), kFewRows - 1);
    if (train.present() <= few) return IgnoreAsEmpty(train, column);
    const int64_t others = train.rows() - MostOfOneValue(train);
    if (others <= few && train.rows() >= 2 * kFewRows) {
      return Ignore(column,
                    fmt::format("all but {} of {} rows have the same value", others, train.rows()));
    }
    if (is_numbers) return;
    column.kind = Kind::kDate;
    column.has_times = train.has_times();
    plan_.has_dates = true;
  }

  // Returns how many rows have the most common value (missing cells count as one value); 0 if the column has too many
  // different values to count them.
  static int64_t MostOfOneValue(const ColumnSketch& column) {
    int64_t most = column.missing();
    for (const auto& [text, count] : column.values()) most = std::max(most, count);
    return column.has_many_texts() ? 0 : most;
  }

  // Plans a column whose name, or whose leading zeros, say that its values are no quantities, although they may be
  // integers: ids that several rows share, and codes such as postal codes. Returns whether the column is such a column.
  bool PlanCodes(const ColumnSketch& train, bool is_numbers, ColumnPlan& column) {
    const bool is_person = IsNameOfPersons(column.name);
    const bool is_id = is_person || EndsWithId(column.name);
    const bool is_padded = train.holds_padded_integers();
    if (!is_id && !is_padded && !IsNameOfCodes(column.name)) return false;
    // Numbers with fractions are quantities, whatever their name is. Columns of two values need no category.
    if (is_numbers && !train.holds_integers()) return false;
    if (!train.has_many_texts() && train.values().size() <= 2) return false;
    const std::string different = CountDifferent(train);
    constexpr size_t kPersons = 10;  // fewer numbers may be kinds of persons
    if (train.repeats() && ((is_id && IsOfManyGroups(train)) ||
                            (is_person && is_numbers && train.values().size() >= kPersons))) {
      Ignore(column,
             fmt::format("an id: {} different values in {} rows; it is for folds, see `folds`",
                         different, train.present()));
      if (plan_.group.empty()) {
        plan_.group = column.name;
        plan_.group_reason = fmt::format(
            "{} rows have {} different values of {}",
            train.present() < train.rows() ? fmt::format("{} of {}", train.present(), train.rows())
                                           : fmt::format("The {}", train.rows()),
            different, ForComment(column.name));
        plan_.notes.push_back(fmt::format(
            "several rows have the same \"{:.40}\": with --folds, all rows of one are in "
            "one fold (the config says more)",
            column.name));
      }
      return true;
    }
    if (TakeAsCategory(train, /*groups_rare=*/true, column)) {
      if (column.remark.empty()) column.remark = fmt::format("{} different values", different);
      if (train.numbers() > 0) column.remark += "; " + NamesOf(train);
      return true;
    }
    if (!is_numbers) return false;  // PlanTexts() says why it is left out
    Ignore(column, fmt::format("{}: {} different ones in {} rows", NamesOf(train), different,
                               train.present()));
    return true;
  }

  // Returns words that tell why a column of integers is none of quantities.
  static std::string NamesOf(const ColumnSketch& codes) {
    return fmt::format("numbers that are names, not quantities{}",
                       codes.holds_padded_integers() ? ", because some begin with a zero" : "");
  }

  // Returns whether a column of ids has so many different values that a model would only learn them by heart: each of
  // them has too few rows.
  static bool IsOfManyGroups(const ColumnSketch& train) {
    if (train.has_many_texts()) return true;
    const auto different = static_cast<int64_t>(train.values().size());
    return different > kFewTexts && different * kRowsOfEach > train.present();
  }

  static std::string CountDifferent(const ColumnSketch& column) {
    return column.has_many_texts() ? "very many" : std::to_string(column.values().size());
  }

  // Makes the column a category if there are enough rows for each of its texts or, with `groups_rare`, if enough rows
  // have a common text. In the latter case the rare texts become one. Returns whether it is a category.
  bool TakeAsCategory(const ColumnSketch& train, bool groups_rare, ColumnPlan& column) {
    if (train.has_many_texts()) return false;
    const auto different = static_cast<int64_t>(train.values().size());
    const int64_t missing = train.missing() > 0 ? 1 : 0;
    if ((different <= kFewTexts && 2 * different <= train.present()) ||
        (different <= kMostTexts && different * kRowsOfEach <= train.present())) {
      column.kind = Kind::kCategory;
      column.categories = different + missing;
      return true;
    }
    if (!groups_rare) return false;
    int64_t common = 0, rows_of_common = 0;
    for (const auto& [text, count] : train.values()) {
      if (count < kRowsOfEach) continue;
      ++common;
      rows_of_common += count;
    }
    if (common == 0 || common > kMostTexts || rows_of_common * kLeastShare < train.present()) {
      return false;
    }
    column.kind = Kind::kCategory;
    column.categories = common + 1 + missing;
    column.remark =
        fmt::format("{} of {} different values have {} rows or more; the others are one", common,
                    different, kRowsOfEach);
    plan_.category_min_rows = kRowsOfEach / 2;
    return true;
  }

  // Plans a column that holds texts, or that holds one number and missing cells (two categories).
  void PlanTexts(const ColumnSketch& train, const ColumnSketch* test, bool is_numbers,
                 ColumnPlan& column) {
    const std::string mixture = is_numbers ? "" : Mixture(train, test);
    // Numbers among texts, and dates that are written otherwise, are worth more once they are written well.
    const bool groups_rare = mixture.empty() && !is_numbers && !LooksLikeDate(train.first_text());
    if (TakeAsCategory(train, groups_rare, column)) {
      if (!mixture.empty()) {
        plan_.notes.push_back(
            fmt::format("\"{:.40}\" is a category, because it {}", column.name, mixture));
      }
      return;
    }
    if (is_numbers) return IgnoreAsEmpty(train, column);
    if (!mixture.empty()) return Ignore(column, "it " + mixture);
    if (LooksLikeDate(train.first_text())) {
      plan_.has_dates = true;
      if (ParseDate(train.first_text())) {
        return Ignore(column,
                      "it has dates, but other texts, too: with empty cells in their place "
                      "the dates could be learnt from");
      }
      return Ignore(column,
                    fmt::format("dates such as {}: written as 2024-05-31 they could be learnt from",
                                train.first_text()));
    }
    constexpr int64_t kLongBytes = 20;
    Ignore(column, fmt::format("{}{} different texts in {} rows",
                               train.text_bytes() >= kLongBytes ? "free text: " : "",
                               CountDifferent(train), train.present()));
  }

  // Returns why a column with numbers and texts is not a column of numbers; empty if it has no numbers.
  std::string Mixture(const ColumnSketch& train, const ColumnSketch* test) const {
    const bool in_train = train.texts() > 0;
    const ColumnSketch& with_text = in_train || test == nullptr ? train : *test;
    if (train.numbers() == 0) return "";
    return fmt::format(
        "mixes numbers and texts: \"{}\" in line {} of {}; an empty cell there would let it be "
        "numbers",
        with_text.first_text(), with_text.first_text_line(),
        NameOfFile(in_train ? request_.train.path : request_.test->path));
  }

  // Returns words that say which columns have missing values.
  std::string Missing() const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < plan_.columns.size(); ++i) {
      const ColumnPlan& column = plan_.columns[i];
      if (column.kind == Kind::kLabel || column.kind == Kind::kIgnored) continue;
      const ColumnSketch* test = InTest(static_cast<int64_t>(i));
      if (column.missing > 0) {
        parts.push_back(fmt::format("{} of {} rows have no {}", column.missing, plan_.rows,
                                    ForComment(column.name)));
      } else if (test != nullptr && test->missing() > 0) {
        parts.push_back(fmt::format("{} of {} rows of {} have no {}", test->missing(), test->rows(),
                                    NameOfFile(request_.test->path), ForComment(column.name)));
      }
    }
    constexpr size_t kShown = 4;
    if (parts.size() > kShown) {
      const size_t more = parts.size() - (kShown - 1);
      parts.resize(kShown - 1);
      parts.push_back(fmt::format("{} further columns lack values, too", more));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  std::string ForComment(const std::string& name) const {
    return request_.train.dialect.header ? fmt::format("{:.40}", name) : "column " + name;
  }

  [[noreturn]] void RefuseAll() const {
    std::vector<std::string> parts;
    for (const ColumnPlan& column : plan_.columns) {
      if (column.kind != Kind::kIgnored || parts.size() == 3) continue;
      parts.push_back(fmt::format("{}: {}", ForComment(column.name), column.reason));
    }
    throw DataError("{}: no column is left to learn from ({}){}", request_.train.path,
                    fmt::join(parts, "; "), CureForTexts());
  }

  // Returns what can be learnt from the columns of texts instead, as the end of an error message.
  std::string CureForTexts() const {
    for (size_t i = 0; i < request_.train.columns.size(); ++i) {
      if (plan_.columns[i].kind != Kind::kIgnored) continue;
      const ColumnSketch& column = request_.train.columns[i];
      if (column.texts() == 0) continue;
      if (IsImageName(column.first_text())) {
        return "; for columns that name images, put the images into a folder for each label and "
               "give that folder";
      }
      return "; free text is no input of a table's model yet: numbers made of it, such as "
             "embeddings, can be further columns, and a model of Hugging Face learns it as tokens "
             "(lockstep help text)";
    }
    return "";
  }

  // A column is a category if it has at most kFewTexts different texts, with two rows for each on average, or at most
  // kMostTexts with kRowsOfEach rows for each. Otherwise the texts with kRowsOfEach rows or more may be categories, if
  // one row of kLeastShare has one of them.
  static constexpr int64_t kFewTexts = 50, kMostTexts = 1000, kRowsOfEach = 20, kLeastShare = 10;

  const TablePlanRequest& request_;
  TablePlan& plan_;
};

// Checks that the columns of the test file are those of the training file. Throws Error (kData) if they are not.
void CheckTest(const TablePlanRequest& request, const TablePlan& plan) {
  if (request.test == nullptr) return;
  const TableSketch& train = request.train;
  const TableSketch& test = *request.test;
  if (!train.dialect.header) {
    const size_t without = train.columns.size() - plan.labels.size();
    if (test.columns.size() == train.columns.size() || test.columns.size() == without) return;
    throw DataError("{}: {} columns where {} has {}, and {} without the label: give both the same",
                    test.path, test.columns.size(), train.path, train.columns.size(), without);
  }
  for (size_t i = 0; i < test.names.size(); ++i) {
    if (train.Has(test.names[i])) continue;
    throw DataError("{}: {}: {} has no such column{}: rename it, or remove it from this file",
                    test.path, test.NameOf(static_cast<int64_t>(i)), train.path,
                    DidYouMean(test.names[i], train.names));
  }
}

// Adds a note if the sample submission holds a value that is no class: `lockstep predict` fills in only submissions
// whose cells hold classes.
void NoteOnSubmission(const TablePlanRequest& request, TablePlan& plan) {
  if (request.submission == nullptr || plan.task != LearnTask::kClassification ||
      request.submission->columns.size() != 2) {
    return;
  }
  std::vector<std::string> classes;
  const ColumnSketch label = request.train.columns[request.train.Find(plan.labels[0])].AsClasses();
  for (const auto& [text, count] : label.values()) classes.push_back(text);
  const TextIndex known(classes, request.train.rule());
  const ColumnSketch& sample = request.submission->columns[1];
  for (const auto& [text, count] : sample.values()) {
    if (known.Find(text, sample.decimal()) >= 0 || HasFraction(text, sample.decimal())) continue;
    plan.notes.push_back(fmt::format(
        "{}: it holds \"{:.40}\", which is none of the {} classes: write one of them there before "
        "`lockstep predict`",
        NameOfFile(request.submission->path), text, plan.classes));
    return;
  }
}

}  // namespace

TablePlan PlanTable(const TablePlanRequest& request) {
  TablePlan plan{.rows = request.train.rows};
  constexpr int64_t kLeastRows = 5;
  if (plan.rows < kLeastRows) {
    throw DataError("{}: {} row{}: give at least {}, of which one is held back to evaluate on",
                    request.train.path, plan.rows, plan.rows == 1 ? "" : "s", kLeastRows);
  }
  ChooseLabels(request, plan);
  ChooseTask(request, plan);
  CheckTest(request, plan);
  Planner(request, plan).PlanColumns();
  NoteOnSubmission(request, plan);
  return plan;
}

}  // namespace lockstep
