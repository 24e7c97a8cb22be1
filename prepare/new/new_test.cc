#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "prepare/new/column_sketch.h"
#include "prepare/new/config_text.h"
#include "prepare/new/names.h"
#include "prepare/new/plan_table.h"
#include "prepare/new/recipe.h"
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
    other = ReadTestSketch(WriteTestFile("test.csv", test), table);
    request.test = &other;
  }
  if (!submission.empty()) {
    sample = ReadSampleSketch(WriteTestFile("sample_submission.csv", submission));
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

TEST(ColumnSketch, TakesTruthValuesAmongNumbersForNumbers) {
  EXPECT_EQ(SketchOf({"1", "True", "0", "FALSE"}).texts(), 0);
  EXPECT_EQ(SketchOf({"1", "True", "x"}).texts(), 1);
  EXPECT_EQ(SketchOf({"True", "FALSE"}).texts(), 2);
}

TEST(ColumnSketch, KnowsIntegersWithLeadingZeros) {
  EXPECT_TRUE(SketchOf({"01234", "90210", ""}).holds_padded_integers());
  for (const std::vector<std::string>& cells : std::vector<std::vector<std::string>>{
           {"11234", "90210"}, {"0", "1"}, {"01", "1"}, {"01", "1x"}, {"0.5", "1.5"}, {""}}) {
    EXPECT_FALSE(SketchOf(cells).holds_padded_integers()) << cells[0];
  }
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
  EXPECT_THAT(DataErrorOf([] { ReadSampleSketch(WriteTestFile("table.csv", "a,b\n")); }),
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

// A column, its cell in row i of 600, and how it must be used.
struct PlannedColumn {
  std::string name;
  std::function<std::string(int)> cell;
  Kind kind;
  bool is_group = false;
  std::string why = "";
};

// Returns row i's number among `count` numbers, in no order.
int Drawn(int i, int count) { return i * 7 % count; }

class NamesOfThings : public ::testing::TestWithParam<PlannedColumn> {};

TEST_P(NamesOfThings, AreNoQuantities) {
  const PlannedColumn& planned = GetParam();
  const TablePlan plan = PlanOf(Table("a," + planned.name + ",y", 600, [&](int i) {
    return fmt::format("{},{},{}", Drawn(i, 599) * 0.37, planned.cell(i), i % 2);
  }));
  const ColumnPlan& column = ColumnOf(plan, planned.name);
  EXPECT_EQ(column.kind, planned.kind) << column.reason;
  EXPECT_EQ(plan.group, planned.is_group ? planned.name : "");
  EXPECT_THAT(column.reason + column.remark, HasSubstr(planned.why));
  EXPECT_EQ(plan.category_min_rows > 1,
            planned.why.find("the others are one") != std::string::npos);
}

std::string Number(int i) { return std::to_string(i); }

INSTANTIATE_TEST_SUITE_P(
    TablePlan, NamesOfThings,
    ::testing::ValuesIn(std::vector<PlannedColumn>{
        {"customer_id", [](int i) { return Number(1000 + Drawn(i, 200)); }, Kind::kIgnored, true,
         "an id: 200 different values in 600 rows"},
        {"customerId", [](int i) { return "c" + Number(Drawn(i, 200)); }, Kind::kIgnored, true},
        {"Patient ID", [](int i) { return Number(Drawn(i, 20)); }, Kind::kIgnored, true},
        {"patient", [](int i) { return Number(Drawn(i, 40)); }, Kind::kIgnored, true},
        {"session", [](int i) { return Number(Drawn(i, 250)); }, Kind::kIgnored, true},
        {"household_number", [](int i) { return Number(Drawn(i, 250)); }, Kind::kIgnored, true},
        {"store_id", [](int i) { return Number(Drawn(i, 12)); }, Kind::kCategory, false,
         "12 different values; numbers that are names"},
        {"product_id", [](int i) { return Number(Drawn(i, 300)); }, Kind::kIgnored, true},
        {"customer", [](int i) { return i % 3 == 0   ? "firm"
                                        : i % 3 == 1 ? "state"
                                                     : "person"; },
         Kind::kCategory},
        {"customer_id", [](int i) { return Number(10000 + 17 * Drawn(i, 1009)); }, Kind::kIgnored,
         false, "an id: all rows have different values"},
        {"user_id", [](int i) { return Number(i % 2); }, Kind::kNumber},
        {"postal_code", [](int i) { return Number(10115 + 3 * Drawn(i, 12)); }, Kind::kCategory,
         false, "numbers that are names"},
        {"PostalCode",
         [](int i) { return Number(i % 3 == 0   ? 8001
                                   : i % 3 == 1 ? 3000
                                                : 5000 + i); },
         Kind::kCategory, false,
         "2 of 202 different values have 20 rows or more; the others are one"},
        {"zip", [](int i) { return Number(10000 + 7 * Drawn(i, 400)); }, Kind::kIgnored, false,
         "numbers that are names, not quantities: 400 different ones"},
        {"country_code", [](int i) { return Number(30 + Drawn(i, 9)); }, Kind::kCategory},
        {"zip_distance", [](int i) { return Number(i % 97) + ".5"; }, Kind::kNumber},
        {"encoded", [](int i) { return Number(i % 97); }, Kind::kNumber},
        {"employer",
         [](int i) { return i % 2 == 0 ? "Works " + Number(i % 3) : "Shop " + Number(i); },
         Kind::kCategory, false,
         "3 of 303 different values have 20 rows or more; the others are one"},
        {"city", [](int i) { return i % 5 == 0 ? "Bern" : "Village " + Number(i / 2); },
         Kind::kCategory, false, "the others are one"},
        {"postcode",
         [](int i) { return i % 2 == 0   ? "SW1A"
                            : i % 4 == 1 ? "8001"
                                         : "E" + Number(i); },
         Kind::kCategory, false,
         "2 of 152 different values have 20 rows or more; the others are one"},
        {"power", [](int i) { return i % 3 == 0 ? "?" : Number(i); }, Kind::kIgnored, false,
         "it mixes numbers and texts"},
        {"day", [](int i) { return i % 3 == 0 ? "01.05.2024" : "1.1." + Number(1900 + i); },
         Kind::kIgnored, false, "dates such as 01.05.2024"},
        {"name", [](int i) { return "Person " + Number(i); }, Kind::kIgnored, false,
         "600 different texts in 600 rows"},
        {"nickname", [](int i) { return i % 20 == 0 ? "Al" : "Person " + Number(i); },
         Kind::kIgnored, false, "571 different texts in 600 rows"},
    }));

TEST(TablePlan, RareTextsCountAsOneInput) {
  const TablePlan plan = PlanOf(Table("a,city,y", 600, [](int i) {
    return fmt::format("{},{},{}", Drawn(i, 599) * 0.37,
                       i % 3 == 0   ? ""
                       : i % 3 == 1 ? "Bern"
                                    : "Village " + Number(i),
                       i % 2);
  }));
  // Bern, the rare ones, and that there is none.
  EXPECT_EQ(ColumnOf(plan, "city").categories, 3);
  EXPECT_EQ(plan.inputs, 1 + 3);
  EXPECT_EQ(plan.numbers, 1);
  EXPECT_EQ(plan.category_min_rows, 10);
}

TablePlan OfClasses(int64_t classes, double rarest) {
  TablePlan plan{.task = LearnTask::kClassification};
  plan.classes = classes;
  plan.rarest = rarest;
  plan.numbers = plan.inputs = 20;
  return plan;
}

TEST(Recipe, ATableWithEnoughRowsGetsAnEnsemble) {
  const Recipe few = RecipeOfTable(OfClasses(2, 0.4), 1900, 2);
  EXPECT_EQ(few.members, 0);
  EXPECT_EQ(few.epochs, 66);
  const Recipe many = RecipeOfTable(OfClasses(2, 0.4), 24'000, 2);
  EXPECT_EQ(many.members, 16);
  EXPECT_EQ(many.number_bins, 8);
  EXPECT_EQ(many.batch, 256);
  EXPECT_EQ(many.epochs, 20);
  EXPECT_EQ(RecipeOfTable(OfClasses(2, 0.4), 1'000'000, 2).batch, 4096);
  TablePlan wide = OfClasses(10, 0.1);
  wide.numbers = wide.inputs = 784;
  EXPECT_EQ(RecipeOfTable(wide, 24'000, 10).members, 0);
}

TEST(Recipe, ARareClassGetsAShortTraining) {
  for (const int64_t rows : {400, 1600, 8000, 24'000}) {
    const Recipe recipe = RecipeOfTable(OfClasses(2, 0.07), rows, 2);
    const int64_t each = (rows + recipe.batch - 1) / recipe.batch;
    EXPECT_EQ(recipe.members, 16) << rows;
    EXPECT_GE(recipe.epochs, 20) << rows;
    EXPECT_LE(recipe.epochs, 60) << rows;
    // The rate has grown to its peak long before the first epochs from which one is chosen.
    EXPECT_LE(recipe.warmup_steps, std::max<int64_t>(1, 3 * each)) << rows;
    EXPECT_EQ(recipe.metric, "auc");
  }
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

TEST(Names, OfPersonsAndCodes) {
  for (const char* name :
       {"customer", "customer_id", "CustomerID", "patient number", "sessionKey"}) {
    EXPECT_TRUE(IsNameOfPersons(name)) << name;
  }
  for (const char* name : {"customers", "customer_age", "store_id", "", "id"}) {
    EXPECT_FALSE(IsNameOfPersons(name)) << name;
  }
  for (const char* name : {"store_id", "shopId", "ID", "order id"}) {
    EXPECT_TRUE(EndsWithId(name)) << name;
  }
  for (const char* name : {"paid", "PAID", "humid", "valid"})
    EXPECT_FALSE(EndsWithId(name)) << name;
  for (const char* name : {"zip", "Zip Code", "postalCode", "PLZ", "postcode", "area_code"}) {
    EXPECT_TRUE(IsNameOfCodes(name)) << name;
  }
  for (const char* name : {"codec", "zipper", "encoded", "decode"}) {
    EXPECT_FALSE(IsNameOfCodes(name)) << name;
  }
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
