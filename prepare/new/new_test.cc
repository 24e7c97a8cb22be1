#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "prepare/new/column_sketch.h"
#include "prepare/new/config_text.h"
#include "prepare/new/names.h"
#include "prepare/new/plan_table.h"
#include "prepare/new/table_sketch.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ColumnPlan::Kind;

ColumnSketch SketchOf(const std::vector<std::string>& cells, size_t most_texts = 100) {
  ColumnSketch sketch(most_texts);
  int64_t line = 2;
  for (const std::string& cell : cells) sketch.Add(cell, line++);
  return sketch;
}

TableSketch Read(const std::string& content) {
  return ReadTableSketch(WriteTestFile("table.csv", content));
}

// Returns the text of a CSV table with a header and `rows` rows. cell(i) returns the text of row i.
template <typename Cell>
std::string Table(const std::string& header, int rows, const Cell& cell) {
  std::string text = header + "\n";
  for (int i = 0; i < rows; ++i) text += cell(i) + "\n";
  return text;
}

TablePlan PlanOf(const std::string& train, const std::string& test = "",
                 const std::string& submission = "") {
  const TableSketch table = ReadTableSketch(WriteTestFile("train.csv", train));
  TablePlanRequest request{.train = table, .held_back = 0.2};
  TableSketch other, sample;
  if (!test.empty()) {
    other = ReadTableSketch(WriteTestFile("test.csv", test), table.dialect);
    request.test = &other;
  }
  if (!submission.empty()) {
    sample =
        ReadTableSketch(WriteTestFile("sample_submission.csv", submission), Dialect{',', true});
    request.submission = &sample;
  }
  return PlanTable(request);
}

const ColumnPlan& ColumnOf(const TablePlan& plan, const std::string& name) {
  for (const ColumnPlan& column : plan.columns) {
    if (column.name == name) return column;
  }
  throw BugError("no column {}", name);
}

TEST(ColumnSketch, MeasuresNumbers) {
  const ColumnSketch sketch = SketchOf({"1", "", "4", " 2.5 ", "NA", "-3"});
  EXPECT_EQ(sketch.rows(), 6);
  EXPECT_EQ(sketch.missing(), 2);
  EXPECT_EQ(sketch.first_missing_line(), 3);
  EXPECT_EQ(sketch.numbers(), 4);
  EXPECT_DOUBLE_EQ(sketch.mean(), 4.5 / 4);
  EXPECT_EQ(sketch.least(), -3);
  EXPECT_EQ(sketch.greatest(), 4);
  EXPECT_FALSE(sketch.holds_integers());
}

TEST(ColumnSketch, KeepsAFewTextsAlone) {
  ColumnSketch sketch = SketchOf({"a", "b", "a"}, 2);
  EXPECT_EQ(sketch.values().at("a"), 2);
  EXPECT_TRUE(sketch.repeats());
  EXPECT_FALSE(sketch.has_many_texts());
  sketch.Add("c", 5);
  EXPECT_TRUE(sketch.has_many_texts());
  EXPECT_TRUE(sketch.values().empty());
  EXPECT_EQ(sketch.texts(), 4);
  EXPECT_EQ(sketch.first_text(), "a");
}

TEST(ColumnSketch, KnowsWhatCountsTheRows) {
  EXPECT_TRUE(SketchOf({"7", "8", "9"}).counts_rows());
  EXPECT_FALSE(SketchOf({"7", "9", "10"}).counts_rows());
  EXPECT_FALSE(SketchOf({"7", "8", ""}).counts_rows());
  EXPECT_FALSE(SketchOf({"7.5", "8.5"}).counts_rows());
}

TEST(TableSketch, FindsTheDelimiter) {
  EXPECT_EQ(Read("a,b,c\n1,2,3\n").dialect.delimiter, ',');
  EXPECT_EQ(Read("a;b;c\n1,5;2;3\n").dialect.delimiter, ';');
  EXPECT_EQ(Read("a\tb\n1, 2\t3\n").dialect.delimiter, '\t');
  EXPECT_EQ(Read("a|b|c\n1|2|\"x,y\"\n").dialect.delimiter, '|');
  EXPECT_EQ(Read("name,text\nx,\"a;b;c;d\"\ny,e\n").dialect.delimiter, ',');
}

TEST(TableSketch, FindsTheHeader) {
  EXPECT_TRUE(Read("a,b\n1,x\n").dialect.header);
  EXPECT_TRUE(Read("0,1,2\n5,6,7\n").dialect.header);
  EXPECT_TRUE(Read("id,0,1\n7,0.5,1\n").dialect.header);
  EXPECT_TRUE(Read("colour,kind\nred,cat\nred,dog\n").dialect.header);
  EXPECT_FALSE(Read("red,cat\nblue,cat\n").dialect.header);
  EXPECT_FALSE(Read("1,2,cat\n3,4,dog\n").dialect.header);
  EXPECT_FALSE(Read("1,2\n3,4\n").dialect.header);
  const TableSketch table = Read("1,2\n3,4\n");
  EXPECT_EQ(table.rows, 2);
  EXPECT_THAT(table.names, ElementsAre("0", "1"));
}

TEST(TableSketch, RefusesWhatIsNoTable) {
  EXPECT_THAT(DataErrorOf([] { Read("a\n1\n"); }), HasSubstr("table.csv:1: one column, \"a\""));
  EXPECT_THAT(DataErrorOf([] { Read("a,b\n1,2\n1,2,3\n"); }),
              HasSubstr("table.csv:3: 3 columns where 2 are expected"));
  EXPECT_THAT(DataErrorOf([] { Read("a,a\n1,2\n"); }), HasSubstr("have one name"));
  EXPECT_THAT(DataErrorOf([] { Read("PK\x03\x04..."); }), HasSubstr("is cut short"));
  EXPECT_THAT(DataErrorOf([] { Read("PAR1..."); }), HasSubstr("to_csv"));
  EXPECT_THAT(
      DataErrorOf([] { ReadTableSketch(WriteTestFile("table.csv", "a,b\n"), Dialect{',', true}); }),
      HasSubstr("a header and no rows below it"));
}

TEST(TablePlan, ChoosesTheLabel) {
  const auto rows = [](const char* header) {
    return Table(header, 12,
                 [](int i) { return fmt::format("{},{},{}", i * 0.37, (i * 7) % 5 * 0.3, i % 2); });
  };
  EXPECT_THAT(PlanOf(rows("a,b,c")).labels, ElementsAre("c"));
  EXPECT_THAT(PlanOf(rows("a,Target,c")).labels, ElementsAre("Target"));
  EXPECT_THAT(PlanOf(rows("a,y,c"), "y,c\n1,2\n").labels, ElementsAre("a"));
  EXPECT_THAT(PlanOf(rows("a,y,c"), "a\n1\n").labels, ElementsAre("y"));
}

TEST(TablePlan, TakesWhatTheSampleSubmissionHas) {
  const std::string train = Table("id,n,casual,count", 12, [](int i) {
    return fmt::format("{},{},{},{}", i, (i * 7) % 12 * 0.5, i * i, i * i + 3);
  });
  EXPECT_THAT(PlanOf(train, "id,n\n9,1\n").labels, ElementsAre("count"));
  EXPECT_THAT(PlanOf(train, "id,n\n9,1\n", "id,casual\n9,0\n").labels, ElementsAre("casual"));
}

TEST(TablePlan, ChoosesTheTask) {
  const auto plan = [](const char* const* labels, int count, int rows = 60) {
    return PlanOf(Table("a,y", rows, [&](int i) {
      return fmt::format("{},{}", (i * 37) % 60 * 0.1, labels[i % count]);
    }));
  };
  const char* classes[] = {"0", "1", "2"};
  EXPECT_EQ(plan(classes, 3).task, LearnTask::kClassification);
  EXPECT_FALSE(plan(classes, 3).label_names);
  const char* others[] = {"3", "5"};
  EXPECT_TRUE(plan(others, 2).label_names);
  const char* texts[] = {"cat", "dog"};
  EXPECT_TRUE(plan(texts, 2).label_names);
  const char* fractions[] = {"0.5", "1"};
  EXPECT_EQ(plan(fractions, 2).task, LearnTask::kRegression);
  // Integers are classes only if there are at least 3 rows of each class on average. For these 3 classes 8 rows are too
  // few.
  EXPECT_EQ(plan(classes, 3, 8).task, LearnTask::kRegression);
}

TEST(TablePlan, SaysWhyColumnsAreLeftOut) {
  const TablePlan plan =
      PlanOf(Table("user_id,n,same,none,few,text,age,kind,one,spike,y", 40, [](int i) {
        return fmt::format("{},{},x,,{},a long text of number {},{},{},{},{},{}", (i * 7) % 40 * 3,
                           i + 100, i == 7 ? "1.5" : "", i,
                           i % 6 == 0 ? "" : std::to_string(i * 31 % 17), i % 3 == 0 ? "?" : "4",
                           i % 2 == 0 ? "1" : "", i == 9 ? "1e30" : "1", i % 2);
      }));
  EXPECT_THAT(ColumnOf(plan, "user_id").reason, HasSubstr("an id"));
  EXPECT_EQ(ColumnOf(plan, "n").reason, "it counts the rows");
  EXPECT_EQ(ColumnOf(plan, "same").reason, "all rows have the same value, x");
  EXPECT_EQ(ColumnOf(plan, "none").reason, "no row has a value there");
  EXPECT_EQ(ColumnOf(plan, "few").reason, "only 1 of 40 rows have a value there");
  EXPECT_THAT(ColumnOf(plan, "text").reason, HasSubstr("free text: 40 different texts in 40 rows"));
  EXPECT_EQ(ColumnOf(plan, "spike").reason, "all but 1 of 40 rows have the same value");
  EXPECT_EQ(ColumnOf(plan, "age").kind, Kind::kNumber);
  EXPECT_EQ(ColumnOf(plan, "kind").kind, Kind::kCategory);
  // A column with one number and missing cells has two categories.
  EXPECT_EQ(ColumnOf(plan, "one").categories, 2);
  EXPECT_EQ(plan.inputs, 1 + 2 + 2);
  EXPECT_THAT(plan.missing, HasSubstr("7 of 40 rows have no age"));
  ASSERT_EQ(plan.notes.size(), 1);
  EXPECT_THAT(plan.notes[0], AllOf(HasSubstr("\"kind\""), HasSubstr("\"?\" in line 2")));
}

TEST(TablePlan, LooksAtTheTestFile) {
  const auto row = [](int i) { return fmt::format("{},{},{}", i * 0.3, i * 0.7, i % 2); };
  const TablePlan plan = PlanOf(Table("a,b,y", 40, row), "a,b\n,1\n2,x\n");
  EXPECT_THAT(plan.missing, HasSubstr("1 of 2 rows of test.csv have no a"));
  EXPECT_THAT(ColumnOf(plan, "b").reason, HasSubstr("\"x\" in line 3 of test.csv"));
}

TEST(TablePlan, FindsDates) {
  const auto row = [](int i) {
    return fmt::format("2024-05-{:02},{}-06-01 12:00,{:02}.05.2024,{}", i % 28 + 1, 1990 + i,
                       i % 28 + 1, i % 2);
  };
  const TablePlan plan = PlanOf(Table("day,when,other,y", 40, row));
  EXPECT_EQ(ColumnOf(plan, "day").kind, Kind::kDate);
  EXPECT_FALSE(ColumnOf(plan, "day").has_times);
  EXPECT_EQ(ColumnOf(plan, "when").kind, Kind::kDate);
  EXPECT_TRUE(ColumnOf(plan, "when").has_times);
  EXPECT_EQ(ColumnOf(plan, "other").reason,
            "dates such as 01.05.2024: written as 2024-05-31 they could be learnt from");
  EXPECT_TRUE(plan.has_dates);
  EXPECT_EQ(plan.inputs, 5 + 7);
  // In the test file, the cell of `day` is a text that is no date, and the cell of `when` is missing.
  const TablePlan other = PlanOf(Table("day,when,other,y", 40, row), "day,when,other\n?,,x\n");
  EXPECT_EQ(ColumnOf(other, "day").kind, Kind::kIgnored);
  EXPECT_THAT(ColumnOf(other, "day").reason, HasSubstr("it has dates, but other texts, too"));
  EXPECT_EQ(ColumnOf(other, "when").kind, Kind::kDate);
  EXPECT_THAT(other.missing, HasSubstr("1 of 1 rows of test.csv have no when"));
}

TEST(TablePlan, RegressionIfTheSampleHasFractions) {
  const std::string train = Table(
      "id,a,y", 60, [](int i) { return fmt::format("{},{},{}", i * 3 % 61, i * 0.3, i % 4); });
  const std::string test = "id,a\n100,1\n101,2\n";
  EXPECT_EQ(PlanOf(train, test, "id,y\n100,0.5\n101,0.5\n").task, LearnTask::kRegression);
  EXPECT_EQ(PlanOf(train, test, "id,y\n100,1\n101,1\n").task, LearnTask::kClassification);
  EXPECT_THAT(PlanOf(train, test, "id,y\n100,9\n101,1\n").notes[0], HasSubstr("it holds \"9\""));
}

TEST(Names, OfIds) {
  for (const char* name : {"id", "ID", "user_id", "PassengerId", "Unnamed: 0", ""}) {
    EXPECT_TRUE(IsNameOfIds(name)) << name;
  }
  for (const char* name : {"valid", "humid", "paid", "width"})
    EXPECT_FALSE(IsNameOfIds(name)) << name;
}

TEST(ConfigText, QuotesAndCutsLines) {
  EXPECT_EQ(InQuotes("a\"b\\c\nd"), "\"a\\\"b\\\\c\\012d\"");
  EXPECT_EQ(ListInQuotes({"a", "b"}), "[\"a\", \"b\"]");
  ConfigText config;
  config.Open("data");
  config.Line("x: 1", "why\nit is");
  config.Line("y: 2", std::string(120, 'w'));
  config.Close();
  EXPECT_EQ(config.text(),
            "data {\n  x: 1  # why it is\n  # " + std::string(120, 'w') + "\n  y: 2\n}\n");
}

}  // namespace
}  // namespace lockstep
