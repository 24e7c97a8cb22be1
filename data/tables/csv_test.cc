#include "data/tables/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_texts.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

// ---- Cells --------------------------------------------------------------------------------------

Rows RowsOf(const std::string& content, char delimiter = ',') {
  const std::string path = "t.csv";
  Rows rows;
  for (CsvCells cells(path, content, delimiter); cells.NextRow();) {
    rows.emplace_back();
    while (cells.NextCell()) rows.back().emplace_back(cells.cell());
  }
  return rows;
}

TEST(CsvCells, ReadsPlainCells) {
  EXPECT_EQ(RowsOf("a,b\nc,d\n"), (Rows{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(RowsOf("a,b\nc,d"), (Rows{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(RowsOf(",\n,x,\n"), (Rows{{"", ""}, {"", "x", ""}}));
  EXPECT_EQ(RowsOf("a,"), (Rows{{"a", ""}}));
  EXPECT_EQ(RowsOf("a;b,c", ';'), (Rows{{"a", "b,c"}}));
}

TEST(CsvCells, EndsLinesInEachWay) {
  EXPECT_EQ(RowsOf("a,b\r\nc,d\re,f\n\rg,h"),
            (Rows{{"a", "b"}, {"c", "d"}, {"e", "f"}, {"g", "h"}}));
}

TEST(CsvCells, LeavesBlankLinesOut) {
  EXPECT_EQ(RowsOf("\n\r\n a \n \t \n\nb\n\n  "), (Rows{{"a"}, {"b"}}));
  EXPECT_EQ(RowsOf(""), Rows{});
  EXPECT_EQ(RowsOf("\"\"\n"), Rows{{""}});
  EXPECT_EQ(RowsOf("\t\n1\t2\n", '\t'), (Rows{{"", ""}, {"1", "2"}}));
  EXPECT_EQ(RowsOf(" \n1 2\n", ' '), (Rows{{"", ""}, {"1", "2"}}));
}

TEST(CsvCells, ReadsQuotedCells) {
  EXPECT_EQ(RowsOf(R"("a,b","say ""hi""","")"), (Rows{{"a,b", "say \"hi\"", ""}}));
  EXPECT_EQ(RowsOf(R"("""","""a""b""")"), (Rows{{"\"", "\"a\"b\""}}));
  EXPECT_EQ(RowsOf("\"a\nb\",c\n\"d\r\ne\rf\"\n"), (Rows{{"a\nb", "c"}, {"d\r\ne\rf"}}));
  EXPECT_EQ(RowsOf("5\" pipe,a\"\"b\n"), (Rows{{"5\" pipe", "a\"\"b"}}));
}

TEST(CsvCells, TrimsWhatIsAroundACellAndNotWhatIsInQuotes) {
  EXPECT_EQ(RowsOf("  a b\t, \" c \" ,d \n"), (Rows{{"a b", " c ", "d"}}));
  EXPECT_EQ(RowsOf(" a\t b ", '\t'), (Rows{{"a", "b"}}));
}

TEST(CsvCells, SkipsAByteOrderMarkOfUtf8) {
  EXPECT_EQ(RowsOf("\xEF\xBB\xBF\"a\",b\n"), (Rows{{"a", "b"}}));
  EXPECT_EQ(RowsOf("\xEF\xBB\xBF"), Rows{});
}

TEST(CsvCells, CountsLinesInQuotesToo) {
  const std::string path = "t.csv";
  CsvCells cells(path, "a\n\n\"x\r\ny\rz\n\",b\r\nc", ',');
  std::vector<int64_t> lines;
  while (cells.NextRow()) {
    while (cells.NextCell()) lines.push_back(cells.line());
  }
  EXPECT_THAT(lines, ElementsAre(1, 3, 6, 7));
}

TEST(CsvCells, RefusesAQuoteThatNeverCloses) {
  EXPECT_THAT(DataErrorOf([] { RowsOf("a\nb,\"c\nd\ne\n"); }),
              HasSubstr("t.csv:2: the quote that begins a cell here is never closed"));
  EXPECT_THAT(DataErrorOf([] { RowsOf("\"\"\""); }), HasSubstr("never closed"));
}

TEST(CsvCells, RefusesTextBehindAQuotedCell) {
  EXPECT_THAT(DataErrorOf([] { RowsOf("a,b\n\"c\nd\"e,f\n"); }),
              HasSubstr("t.csv:3: text behind a cell in quotes"));
}

TEST(CsvCells, RefusesWhatIsNoText) {
  EXPECT_THAT(DataErrorOf([] {
                RowsOf(
                    std::string("\xFF\xFE"
                                "a\0",
                                4));
              }),
              HasSubstr("UTF-16"));
  EXPECT_THAT(DataErrorOf([] { RowsOf(std::string("\xFE\xFF\0a", 4)); }), HasSubstr("UTF-16"));
  EXPECT_THAT(DataErrorOf([] { RowsOf(std::string("1,2\n3\0,4", 8)); }),
              HasSubstr("t.csv:2: a zero byte"));
  EXPECT_THAT(DataErrorOf([] { RowsOf(std::string("1,\"2\0\"", 6)); }),
              HasSubstr("t.csv:1: a zero byte"));
}

TEST(CsvCells, AreWrittenAsTheyAreRead) {
  for (const std::string text :
       {"", "plain", "a,b", "\"", "a\"\"b", "two\nlines", "\r", " a", "b\t"}) {
    EXPECT_EQ(RowsOf(AsCsvCell(text, ',') + ",x"), (Rows{{text, "x"}})) << text;
  }
  EXPECT_EQ(AsCsvCell("a b", ','), "a b");
  EXPECT_EQ(AsCsvCell("a,b", ';'), "a,b");
  EXPECT_EQ(AsCsvCell("a;b", ';'), "\"a;b\"");
}

// ---- Tables -------------------------------------------------------------------------------------

struct Sample {
  std::vector<float> input;
  int64_t label = -2;
};

// Returns the input of sample `index`, and writes the bytes of the sample's target to `target`.
std::vector<float> Read(const CsvTable& table, int64_t index, std::vector<std::byte>& target) {
  std::vector<float> input(table.dataset->spec().bytes() / sizeof(float));
  target.resize(table.dataset->spec().target_bytes());
  table.dataset->Read(index, 0, reinterpret_cast<std::byte*>(input.data()), target.data());
  return input;
}

Sample SampleOf(const CsvTable& table, int64_t index) {
  std::vector<std::byte> target;
  Sample sample{Read(table, index, target)};
  std::memcpy(&sample.label, target.data(), sizeof(sample.label));
  return sample;
}

std::vector<float> InputOf(const CsvTable& table, int64_t index) {
  std::vector<std::byte> target;
  return Read(table, index, target);
}

std::vector<float> TargetOf(const CsvTable& table, int64_t index) {
  std::vector<std::byte> bytes;
  Read(table, index, bytes);
  std::vector<float> target(bytes.size() / sizeof(float));
  std::memcpy(target.data(), bytes.data(), bytes.size());
  return target;
}

// Returns the message of the error that ReadCsv() throws for a file with `content`.
std::string ErrorOf(const std::string& content, CsvOptions options = {}) {
  options.files = {WriteTestFile("t.csv", content)};
  return DataErrorOf([&] { ReadCsv(options); });
}

CsvTable Read(const std::string& content, CsvOptions options = {}) {
  options.files = {WriteTestFile("t.csv", content)};
  return ReadCsv(options);
}

// Returns `options` for reading another file, which has `content`, with the values that were fitted to the training
// files of `table`.
CsvOptions AsTrained(CsvOptions options, const CsvTable& table, const std::string& content) {
  options.files = {WriteTestFile("other.csv", content)};
  options.columns = table.columns;
  options.class_names = table.dataset->spec().class_names;
  options.classes = table.dataset->spec().classes;
  options.features = table.dataset->spec().shape[0];
  options.labels = table.labels;
  return options;
}

TEST(Csv, ReadsFeaturesAndLabels) {
  const CsvTable table = Read("1,2.5,0\r\n3, 4e1 ,2\n\n", {.scale = 2});
  EXPECT_EQ(table.dataset->size(), 2);
  EXPECT_EQ(table.dataset->spec().shape, std::vector<int64_t>{2});
  EXPECT_EQ(table.dataset->spec().classes, 3);
  EXPECT_TRUE(table.columns.empty());
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{2, 5}));
  EXPECT_EQ(SampleOf(table, 0).label, 0);
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{6, 80}));
  EXPECT_EQ(SampleOf(table, 1).label, 2);
}

TEST(Csv, ReadsSeveralFilesWithHeadersAndAnotherDelimiterAndLabelColumn) {
  const CsvTable table = ReadCsv(
      {.files = {WriteTestFile("a.csv", "label;x\n1;7\n"), WriteTestFile("b.csv", "label;x\n0;8")},
       .delimiter = ';',
       .header = true,
       .label_column = 0,
       .classes = 5});
  EXPECT_EQ(table.dataset->size(), 2);
  EXPECT_EQ(table.dataset->spec().classes, 5);
  EXPECT_THAT(table.labels, ElementsAre("label"));
  ASSERT_EQ(table.columns.size(), 1u);
  EXPECT_EQ(table.columns[0].name, "x");
  EXPECT_EQ(InputOf(table, 1), std::vector<float>{8});
  EXPECT_EQ(SampleOf(table, 1).label, 0);
}

TEST(Csv, ReadsNumbersAsOthersWriteThem) {
  const CsvTable table = Read("+1.5,.5,5.,\" -2 \",1E-3,1e-50,-1e-400,\"7\",0\n");
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{1.5, .5, 5, -2, 1e-3F, 0, 0, 7}));
}

TEST(Csv, FindsColumnsByName) {
  const CsvOptions options{
      .header = true, .labels = {"Survived"}, .ignore = {"Name", "Id"}, .category = {"Sex"}};
  const CsvTable table = Read(
      "Id,Survived,Name,Sex,Age\n"
      "1,0,\"Braund, Mr. Owen\",male,22\n"
      "2,1,\"Heikkinen, \"\"Laina\"\"\",female,26\n",
      options);
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{0, 1, 22}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{1, 0, 26}));
  EXPECT_EQ(SampleOf(table, 1).label, 1);
  ASSERT_EQ(table.columns.size(), 2u);
  EXPECT_EQ(table.columns[0].name, "Sex");
  EXPECT_THAT(table.columns[0].categories, ElementsAre("female", "male"));
  EXPECT_EQ(table.columns[1].name, "Age");
  EXPECT_THAT(table.columns[1].categories, ElementsAre());
}

TEST(Csv, FindsColumnsByNumber) {
  const CsvTable table = Read("x,1,u,5,0\nx,2,v,6,1\n", {.ignore = {"0", "3"}, .category = {"2"}});
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{2, 0, 1}));
}

TEST(Csv, ATextThatTrainingDidNotHaveIsNoCategory) {
  const CsvOptions options{.category = {"0"}};
  const CsvTable table = Read("b,1,0\na,2,1\n", options);
  const CsvTable other = ReadCsv(AsTrained(options, table, "c,3,0\nb,4,1\n"));
  EXPECT_EQ(InputOf(other, 0), (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(InputOf(other, 1), (std::vector<float>{0, 1, 4}));
}

TEST(Csv, TheMeanStandsForWhatIsMissing) {
  const CsvOptions options{.category = {"1"}, .mean_if_missing = true, .scale = 10};
  const CsvTable table = Read("1,a,0\n,NA,1\n6,b,0\nnan,Null,1\n", options);
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{10, 0, 1, 0}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{35, 1, 0, 0}));
  EXPECT_EQ(InputOf(table, 3), InputOf(table, 1));
  EXPECT_THAT(table.columns[1].categories, ElementsAre("", "a", "b"));
}

TEST(Csv, AMissingCategoryIsOneOnlyWhereTrainingHadIt) {
  const CsvOptions options{.category = {"0"}, .mean_if_missing = true};
  const CsvTable table = Read("a,1,0\nb,2,1\n", options);
  EXPECT_THAT(table.columns[0].categories, ElementsAre("a", "b"));
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, table, ",,0\n")), 0),
            (std::vector<float>{0, 0, 1.5}));
}

TEST(Csv, StandardizesNumbers) {
  // The first column has the mean 3e9 and the standard deviation 2. If its two numbers were read as floats, they would
  // be equal.
  const CsvOptions options{.mean_if_missing = true, .scaling = CsvScaling::kStandard};
  const CsvTable table = Read("2999999998,5,0\n3000000002,5,1\n", options);
  EXPECT_EQ(table.columns[0].mean, 3e9);
  EXPECT_EQ(table.columns[0].std, 2);
  EXPECT_EQ(table.columns[1].std, 1);
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{-1, 0}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{1, 0}));
  const CsvTable other = ReadCsv(AsTrained(options, table, "3000000004,,0\nna,7,1\n"));
  EXPECT_EQ(InputOf(other, 0), (std::vector<float>{2, 0}));
  EXPECT_EQ(InputOf(other, 1), (std::vector<float>{0, 2}));
}

TEST(Csv, ScalesWithTheQuartilesAndQuantilesOfTheTrainingRows) {
  CsvOptions options{.mean_if_missing = true, .scaling = CsvScaling::kRobust};
  // Rows 0 to 4 are the training rows: the mean of their numbers is 16, and the quartiles are 1, 3 and 5. A missing
  // number becomes the median, which the outlier 71 does not move.
  options.training_rows = [](int64_t) { return std::vector<int64_t>{0, 1, 2, 3, 4}; };
  const std::string content = "1,0\n3,0\n71,1\n0,1\n5,0\n1000,1\n,1\n";
  const CsvTable table = Read(content, options);
  EXPECT_EQ(table.columns[0].median, 3);
  EXPECT_EQ(table.columns[0].quartile_range, 4);
  EXPECT_EQ(InputOf(table, 0), std::vector<float>{-0.5});
  EXPECT_EQ(InputOf(table, 2), std::vector<float>{17});
  EXPECT_EQ(InputOf(table, 6), std::vector<float>{0});
  const CsvTable robust = ReadCsv(AsTrained(options, table, "7,0\n,1\n"));
  EXPECT_EQ(InputOf(robust, 0), std::vector<float>{1});
  EXPECT_EQ(InputOf(robust, 1), std::vector<float>{0});

  options.scaling = CsvScaling::kQuantile;
  const CsvTable other = Read(content, options);
  EXPECT_THAT(other.columns[0].quantiles, ElementsAre(0, 1, 3, 5, 71));
  EXPECT_EQ(InputOf(other, 1), std::vector<float>{0});
  EXPECT_NEAR(InputOf(other, 0)[0], -0.67448975, 1e-7);  // the lower quartile of N(0, 1)
  EXPECT_NEAR(InputOf(other, 5)[0], 5.1993376, 1e-6);
  EXPECT_EQ(other.columns[0].median, 3);
  EXPECT_EQ(InputOf(other, 6), std::vector<float>{0});
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, other, ",0\n")), 0), std::vector<float>{0});
}

TEST(Csv, SaysWhereValuesAreMissing) {
  CsvOptions options{.mean_if_missing = true, .missing_indicator = true};
  // In the third column only row 3 lacks a value. Row 3 is not a training row, so this column has no indicator.
  options.training_rows = [](int64_t) { return std::vector<int64_t>{0, 1, 2}; };
  const CsvTable table = Read("1,2,3,0\n,5,9,1\n4,NA,3,0\n7,8,,1\n", options);
  EXPECT_EQ(table.dataset->spec().shape, std::vector<int64_t>{5});
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{1, 0, 2, 0, 3}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{2.5, 1, 5, 0, 9}));
  EXPECT_EQ(InputOf(table, 2), (std::vector<float>{4, 0, 3.5, 1, 3}));
  EXPECT_EQ(InputOf(table, 3), (std::vector<float>{7, 0, 8, 0, 5}));
  options.training_rows = nullptr;
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, table, ",,,0\n")), 0),
            (std::vector<float>{2.5, 1, 3.5, 1, 5}));

  // This table has a column of numbers and a category column. The missing texts of the category column are a category.
  options.header = true;
  options.category = {"c"};
  options.scaling = CsvScaling::kStandard;
  const CsvTable named = Read("a,c,y\n1,u,0\n,,1\n3,u,0\n", options);
  EXPECT_EQ(named.columns[0].inputs(), 2);
  EXPECT_EQ(InputOf(named, 1), (std::vector<float>{0, 1, 1, 0}));
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, named, "y,c,a\n0,u,\n")), 0),
            (std::vector<float>{0, 1, 0, 1}));
}

TEST(Csv, DatesBecomeNumbers) {
  CsvOptions options{.header = true, .labels = {"y"}, .category = {"c"}, .date = {"day"}};
  const std::string content = "day,c,y\n1970-01-05,u,0\n1970-01-08,v,1\n";
  const CsvTable table = Read(content, options);
  EXPECT_EQ(table.columns[0].dates, CsvDates::kDays);
  ASSERT_EQ(table.dataset->spec().shape, std::vector<int64_t>{7});
  const std::vector<float> monday = InputOf(table, 0);
  EXPECT_EQ(monday[0], 4);
  EXPECT_NEAR(monday[1], 0.0688, 1e-4);  // sin(2 pi 4 / 365)
  EXPECT_NEAR(monday[2], 0.9976, 1e-4);
  EXPECT_EQ(monday[3], 0);
  EXPECT_EQ(monday[4], 1);
  EXPECT_EQ(monday[5], 1);
  EXPECT_EQ(monday[6], 0);
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, table, "y,c,day\n0,u,1970-01-05 06:00\n")), 0)[0],
            4.25);

  // The options give the date column by its number and scale its days, and two training rows have a time of day. For a
  // missing date, all sines and cosines are 0.
  options = {.date = {"0"},
             .mean_if_missing = true,
             .missing_indicator = true,
             .scaling = CsvScaling::kStandard};
  const CsvTable timed = Read("1970-01-01 12:00,0\n,1\n1970-01-03 12:00,0\n", options);
  EXPECT_EQ(timed.columns[0].dates, CsvDates::kTimes);
  EXPECT_EQ(InputOf(timed, 1), (std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0}));
  const std::vector<float> noon = InputOf(timed, 0);
  EXPECT_EQ(noon[0], -1);
  EXPECT_EQ(noon[1], 0);
  EXPECT_NEAR(noon[6], 0, 1e-6);
  EXPECT_EQ(noon[7], -1);
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, timed, "1970-01-03 12:00,0\n")), 0),
            InputOf(timed, 2));
  // Noon in local time with the offset -14:00 is on the next day in UTC, but has the same positions in the year, the
  // week and the day.
  const std::vector<float> far =
      InputOf(ReadCsv(AsTrained(options, timed, "1970-01-01 12:00-14:00,0\n")), 0);
  EXPECT_NEAR(far[0], -1 + 14.0 / 24, 1e-6);
  EXPECT_TRUE(std::equal(far.begin() + 1, far.end(), noon.begin() + 1, noon.end()));
}

TEST(Csv, SaysWhichFeaturesAreCategories) {
  const CsvTable table = Read("1,u,2,x,0\n3,v,4,y,1\n5,w,6,x,0\n", {.category = {"1", "3"}});
  const std::vector<FeatureRange>& found = table.dataset->spec().categories;
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].first, 1);
  EXPECT_EQ(found[0].count, 3);
  EXPECT_EQ(found[1].first, 5);
  EXPECT_EQ(found[1].count, 2);
}

TEST(Csv, RareTextsAreOneFeature) {
  CsvOptions options{.category = {"0"}, .category_min_rows = 2, .mean_if_missing = true};
  options.training_rows = [](int64_t) { return std::vector<int64_t>{0, 1, 2, 3, 4}; };
  const std::string content = "b,0\na,1\nb,0\na,1\nc,0\nc,1\n,1\n";
  const CsvTable table = Read(content, options);
  EXPECT_THAT(table.columns[0].categories, ElementsAre("a", "b"));
  EXPECT_TRUE(table.columns[0].has_rare);
  EXPECT_EQ(InputOf(table, 0), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(InputOf(table, 4), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(InputOf(table, 6), (std::vector<float>{0, 0, 1}));
  options.training_rows = nullptr;
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, table, "new,0\n")), 0),
            (std::vector<float>{0, 0, 1}));
  // No text is rare, so there is no feature for rare texts.
  EXPECT_EQ(InputOf(Read("a,0\na,1\nb,0\nb,1\n", options), 2), (std::vector<float>{0, 1}));
}

TEST(Csv, RefusesAColumnOfRareTextsAlone) {
  EXPECT_THAT(ErrorOf("1,u,0\n2,v,1\n", {.category = {"1"}, .category_min_rows = 2}),
              HasSubstr("t.csv: column 2: no text is in 2 training rows or more: set a lower "
                        "data.csv.category_min_rows, or add \"1\" to data.csv.ignore"));
  EXPECT_THAT(ErrorOf("c,d,y\nu,u,0\nu,v,1\n",
                      {.header = true, .category = {"c", "d"}, .category_min_rows = 2}),
              HasSubstr("column 2 (d): no text is in 2 training rows or more"));
}

TEST(Csv, FitsToTheTrainingRowsAlone) {
  CsvOptions options{.category = {"1"}, .mean_if_missing = true, .scaling = CsvScaling::kStandard};
  options.files = {WriteTestFile("a.csv", "1,a,0\n100,x,1\n"),
                   WriteTestFile("b.csv", "5,b,1\n200,,0\n")};
  options.training_rows = [](int64_t rows) {
    EXPECT_EQ(rows, 4);
    return std::vector<int64_t>{0, 2};
  };
  const CsvTable table = ReadCsv(options);
  EXPECT_EQ(table.columns[0].mean, 3);
  EXPECT_EQ(table.columns[0].std, 2);
  EXPECT_THAT(table.columns[1].categories, ElementsAre("a", "b"));
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{48.5, 0, 0}));
  EXPECT_EQ(InputOf(table, 3), (std::vector<float>{98.5, 0, 0}));
}

TEST(Csv, ALabelThatOnlyHeldBackRowsHaveIsAClass) {
  CsvOptions options{.category = {"0"}, .label_names = true};
  options.training_rows = [](int64_t) { return std::vector<int64_t>{0, 2}; };
  const CsvTable table = Read("u,cat\nv,ant\nu,dog\n", options);
  EXPECT_THAT(table.dataset->spec().class_names, ElementsAre("ant", "cat", "dog"));
  EXPECT_EQ(SampleOf(table, 1).label, 0);
  EXPECT_THAT(table.columns[0].categories, ElementsAre("u"));
}

TEST(Csv, WhatWasFittedIsNotFittedAgain) {
  CsvOptions options{.header = true, .labels = {"y"}, .scaling = CsvScaling::kStandard};
  options.columns = {{.name = "x", .mean = 10, .std = 4}};
  const CsvTable table = Read("x,y\n18,0\n2,1\n", options);
  EXPECT_EQ(InputOf(table, 0), std::vector<float>{2});
  EXPECT_EQ(table.columns[0].mean, 10);
}

TEST(Csv, LabelsMayBeTexts) {
  CsvOptions options{.header = true, .labels = {"kind"}, .label_names = true};
  const CsvTable table = Read("x,kind\n1,cat\n2,\"a, dog\"\n3,cat\n", options);
  EXPECT_THAT(table.dataset->spec().class_names, ElementsAre("a, dog", "cat"));
  EXPECT_EQ(table.dataset->spec().classes, 2);
  EXPECT_EQ(SampleOf(table, 0).label, 1);
  EXPECT_EQ(SampleOf(table, 1).label, 0);
  EXPECT_EQ(SampleOf(ReadCsv(AsTrained(options, table, "kind,x\ncat,1\n")), 0).label, 1);
  EXPECT_THAT(
      DataErrorOf([&] { ReadCsv(AsTrained(options, table, "kind,x\ncat,1\ncow,2\n")); }),
      HasSubstr("other.csv:3: column 1 (kind): label \"cow\" is none of those in training"));
  // The user may give the classes in any order.
  options.class_names = {"cat", "a, dog"};
  EXPECT_EQ(SampleOf(Read("x,kind\n1,cat\n2,\"a, dog\"\n", options), 1).label, 1);
}

TEST(Csv, ReadsSeveralLabels) {
  const CsvOptions options{.label_column = 2, .label_columns = 2, .task = Task::kRegression};
  const CsvTable table = Read("1,0.5,7,-2\n0,1,8,3\n", options);
  EXPECT_EQ(table.dataset->spec().shape, std::vector<int64_t>{2});
  EXPECT_EQ(table.dataset->spec().classes, 2);
  EXPECT_EQ(table.dataset->spec().target_bytes(), 8);
  EXPECT_EQ(TargetOf(table, 1), (std::vector<float>{8, 3}));

  CsvOptions unlabelled = AsTrained(options, table, "4,5\n");
  unlabelled.label_optional = true;
  const CsvTable other = ReadCsv(unlabelled);
  EXPECT_THAT(TargetOf(other, 0), ElementsAre(testing::IsNan(), testing::IsNan()));
}

TEST(Csv, MatchesOtherFilesLabelsByName) {
  // For the training file, the labels are given by the number of their first column.
  CsvOptions options{
      .header = true, .label_column = 1, .label_columns = 3, .task = Task::kRegression};
  const CsvTable table = Read("x,y1,y2,y3\n1,10,20,30\n", options);
  EXPECT_THAT(table.labels, ElementsAre("y1", "y2", "y3"));
  EXPECT_EQ(TargetOf(table, 0), (std::vector<float>{10, 20, 30}));
  const CsvTable other = ReadCsv(AsTrained(options, table, "y3,y1,x,y2\n3,1,9,2\n"));
  EXPECT_EQ(InputOf(other, 0), std::vector<float>{9});
  EXPECT_EQ(TargetOf(other, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(other.labels, table.labels);

  const char* const kLacksOne = "y3,x,y1\n3,9,1\n";
  const auto missing = HasSubstr("other.csv: no column \"y2\", one of the labels");
  EXPECT_THAT(DataErrorOf([&] { ReadCsv(AsTrained(options, table, kLacksOne)); }), missing);
  options.label_optional = true;
  EXPECT_THAT(DataErrorOf([&] { ReadCsv(AsTrained(options, table, kLacksOne)); }), missing);
  EXPECT_THAT(TargetOf(ReadCsv(AsTrained(options, table, "x\n9\n")), 0),
              ElementsAre(testing::IsNan(), testing::IsNan(), testing::IsNan()));
  EXPECT_THAT(TargetOf(ReadCsv(AsTrained(options, table, "y3,y1,x,y2\n3,,9,2\n")), 0),
              ElementsAre(testing::IsNan(), 2, 3));
}

TEST(Csv, LabelsByNameNeedNotStandTogether) {
  const CsvOptions options{.header = true, .labels = {"y2", "y1"}, .task = Task::kRegression};
  const CsvTable table = Read("y1,a,y2,b\n1,2,3,4\n5,6,7,8\n", options);
  EXPECT_EQ(table.dataset->spec().classes, 2);
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{6, 8}));
  EXPECT_EQ(TargetOf(table, 0), (std::vector<float>{3, 1}));
  EXPECT_EQ(TargetOf(table, 1), (std::vector<float>{7, 5}));
  EXPECT_THAT(table.labels, ElementsAre("y2", "y1"));
}

TEST(Csv, ReadsTargetsWithADecimalComma) {
  const CsvOptions options{
      .delimiter = ';', .header = true, .labels = {"y"}, .task = Task::kRegression};
  const CsvTable table = Read("a;y\n1;0,5\n2;1.281,25\n", options);
  EXPECT_EQ(TargetOf(table, 0), std::vector<float>{0.5});
  EXPECT_EQ(TargetOf(table, 1), std::vector<float>{1281.25});
}

TEST(Csv, ReadsRowsWithoutALabelToPredict) {
  const CsvOptions options{.features = 2, .label_optional = true};
  const CsvTable table = Read("1,2\n3,4\n", options);
  EXPECT_EQ(InputOf(table, 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(SampleOf(table, 1).label, Dataset::kNoLabel);
  EXPECT_EQ(SampleOf(Read("1,2,\n3,4,1\n", options), 0).label, Dataset::kNoLabel);
  EXPECT_EQ(SampleOf(Read("1,2,\n3,4,1\n", options), 1).label, 1);
}

TEST(Csv, ReadsRowsWithoutALabelThatStoodAmongThem) {
  CsvOptions options{.label_column = 1, .ignore = {"0", "3"}, .category = {"2"}};
  const CsvTable table = Read("i,0,a,j,1\ni,1,b,j,2\n", options);
  options.label_optional = true;
  const CsvTable other = ReadCsv(AsTrained(options, table, "i,b,j,5\n"));
  EXPECT_EQ(InputOf(other, 0), (std::vector<float>{0, 1, 5}));
}

TEST(Csv, MatchesOtherFilesColumnsByName) {
  CsvOptions options{.header = true, .label_column = 0, .ignore = {"id"}, .category = {"c"}};
  const CsvTable table = Read("y,id,a,c,b\n0,i,1,u,2\n1,j,3,v,4\n", options);
  EXPECT_EQ(InputOf(ReadCsv(AsTrained(options, table, "b,c,a,y\n20,v,10,1\n")), 0),
            (std::vector<float>{10, 0, 1, 20}));
  options.label_optional = true;
  const CsvTable other = ReadCsv(AsTrained(options, table, "id,b,a,c\n9,20,10,u\n"));
  EXPECT_EQ(InputOf(other, 0), (std::vector<float>{10, 1, 0, 20}));
  EXPECT_EQ(SampleOf(other, 0).label, Dataset::kNoLabel);
}

TEST(Csv, ReadsAMillionColumns) {
  constexpr int kColumns = 1000000;
  std::string header, row;
  for (int i = 0; i < kColumns; ++i) {
    header += "c" + std::to_string(i) + ",";
    row += std::to_string(i % 1000) + ",";
  }
  const CsvTable table = Read(header + "y\n" + row + "3\n" + row + "4\n",
                              {.header = true, .labels = {"y"}, .mean_if_missing = true});
  const Sample sample = SampleOf(table, 1);
  ASSERT_EQ(sample.input.size(), static_cast<size_t>(kColumns));
  for (int i = 0; i < kColumns; ++i) ASSERT_EQ(sample.input[i], i % 1000);
  EXPECT_EQ(sample.label, 4);
  EXPECT_EQ(table.columns[kColumns - 1].name, "c999999");
}

TEST(Csv, RefusesTooManyColumns) {
  EXPECT_THAT(ErrorOf(std::string((1 << 24) + 5, ',')), HasSubstr("t.csv:1: more than 16777216"));
}

TEST(Csv, RefusesALabelThatIsNot0Or1) {
  EXPECT_THAT(ErrorOf("1,0,1\n2,1,0.5\n",
                      {.label_column = -2, .label_columns = 2, .task = Task::kMultiLabel}),
              HasSubstr("t.csv:2: column 3: label \"0.5\" is neither 0 nor 1"));
}

TEST(Csv, RefusesAMissingFile) {
  EXPECT_THAT(DataErrorOf([] { ReadCsv({.files = {"/nowhere/a.csv"}}); }),
              HasSubstr("/nowhere/a.csv"));
}

TEST(Csv, RefusesAnEmptyFile) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("no rows"));
  const CsvOptions header{.header = true};
  CsvOptions standardize = header, category = header, held_back = header;
  standardize.scaling = CsvScaling::kStandard;
  category.category = {"a"};
  held_back.training_rows = [](int64_t) { return std::vector<int64_t>{}; };
  for (const CsvOptions& options : {header, standardize, category, held_back}) {
    EXPECT_THAT(ErrorOf("a,b\n\n", options), HasSubstr("t.csv: the file has no rows"));
  }
  const std::vector<std::string> files{WriteTestFile("a.csv", "1,0\n"),
                                       WriteTestFile("b.csv", "\n")};
  EXPECT_THAT(DataErrorOf([&] { ReadCsv({.files = files}); }), HasSubstr("b.csv: the file has no"));
}

TEST(Csv, RefusesARaggedRow) {
  EXPECT_THAT(ErrorOf("1,2,0\n1,0\n"), HasSubstr("t.csv:2: 2 columns where 3 are expected"));
  EXPECT_THAT(ErrorOf("1,2,0\n1,2,3,0\n"), HasSubstr("t.csv:2: 4 columns where 3 are expected"));
  EXPECT_THAT(ErrorOf("7\n"), HasSubstr("only 1 column: a row needs a feature and 1 label"));
  // The error is about the number of cells in the row, and not about the cell "a", which is in the label column because
  // the row has one cell too many.
  EXPECT_THAT(ErrorOf("x,y\n1,0\n\"1\n\",a,0\n", {.header = true}),
              HasSubstr("t.csv:3: 3 columns where 2 are expected"));
  const std::vector<std::string> files{WriteTestFile("a.csv", "1,0\n"),
                                       WriteTestFile("b.csv", "\n1,2,0\n")};
  EXPECT_THAT(DataErrorOf([&] { ReadCsv({.files = files}); }),
              HasSubstr("b.csv:2: 3 columns where"));
}

TEST(Csv, RefusesACellThatIsNoNumber) {
  for (const std::string cell :
       {"x", "1x", "inf", "1e99", "-1e5000", "0x10", "1_000", "+-1", "--1", "1 2"}) {
    EXPECT_THAT(ErrorOf("1,2,0\n1," + cell + ",0\n"),
                HasSubstr("t.csv:2: column 2: \"" + cell +
                          "\" is no finite number; if the column holds texts, add \"1\" to "
                          "data.csv.category or data.csv.ignore"));
  }
  EXPECT_THAT(ErrorOf("x,y\n1,0\n"), HasSubstr("data.csv.header: true"));
  EXPECT_THAT(ErrorOf("Age,y\n\n\nold,0\n", {.header = true}),
              HasSubstr("t.csv:4: column 1 (Age): \"old\" is no finite number; if the column holds "
                        "texts, add \"Age\" to data.csv.category"));
  EXPECT_THAT(ErrorOf("day,y\n2024-05-31,0\n", {.header = true}),
              HasSubstr("column 1 (day): \"2024-05-31\" is no finite number; if the column holds "
                        "dates, add \"day\" to data.csv.date"));
  for (const CsvScaling scaling : {CsvScaling::kNone, CsvScaling::kRobust}) {
    EXPECT_THAT(ErrorOf("1,0\n3e38,1\n1e39,1\n", {.scaling = scaling}),
                HasSubstr("t.csv:3: column 1: \"1e39\" is no finite number"));
  }
  EXPECT_THAT(ErrorOf("1,0\n3e38,1\n", {.scale = 10}),
              HasSubstr("t.csv:2: column 1: \"3e38\" is too great a number once it is scaled"));
}

TEST(Csv, RefusesACellThatIsNoDate) {
  const CsvOptions options{.header = true, .date = {"day"}};
  EXPECT_THAT(ErrorOf("day,y\n2024-01-01,0\n31.05.2024,1\n", options),
              HasSubstr("t.csv:3: column 1 (day): \"31.05.2024\" is no date such as 2024-05-31 or "
                        "2024-05-31 14:30; write it so, or move \"day\" from data.csv.date to "
                        "data.csv.ignore"));
  EXPECT_THAT(ErrorOf("day,y\n,0\n", options),
              HasSubstr("t.csv:2: column 1 (day): \"\" is no value: fill it in"));
  EXPECT_THAT(ErrorOf("day,y\n,0\n", {.header = true, .date = {"day"}, .mean_if_missing = true}),
              HasSubstr("column 1 (day): no training row has a date there"));
  EXPECT_THAT(
      ErrorOf("day,y\n2024-01-01,0\n", {.header = true, .category = {"day"}, .date = {"day"}}),
      HasSubstr("is given twice, as data.csv.category and as data.csv.date"));
}

// Checks that errors in files other than the training files do not propose a change of the config, because the columns
// of a trained run cannot change.
TEST(Csv, SaysOfAnotherFileHowToWriteACell) {
  CsvOptions options{.header = true, .labels = {"y"}, .date = {"day"}};
  const CsvTable table = Read("day,x,y\n2024-01-01,1,0\n", options);
  const auto error = [&](const std::string& row) {
    return DataErrorOf([&] { ReadCsv(AsTrained(options, table, "day,x,y\n" + row + "\n")); });
  };
  EXPECT_THAT(error("x,1,0"), EndsWith("\"x\" is no date such as 2024-05-31 or 2024-05-31 14:30; "
                                       "write it so"));
  EXPECT_THAT(error("2024-01-01,x,0"), EndsWith("\"x\" is no finite number; write one"));
  EXPECT_THAT(error("2024-01-01,,0"), EndsWith("\"\" is no value: fill it in"));
}

TEST(Csv, RefusesQuantilesOfTooManyColumns) {
  std::string content;
  for (int row = 0; row < 1001; ++row) {
    for (int column = 0; column < 201; ++column) content += std::to_string(row) + ",";
    content += "0\n";
  }
  EXPECT_THAT(ErrorOf(content, {.scaling = CsvScaling::kQuantile}),
              HasSubstr("t.csv: data.csv.scaling: QUANTILE keeps up to 1000 numbers of each column "
                        "in the run's config, and more than 200000 of all columns are too many: "
                        "take ROBUST"));
}

TEST(Csv, RefusesAMissingCell) {
  for (const std::string cell : {"", "nan", "NaN", "NA", "null", "NULL", "\"\"", "\" \""}) {
    EXPECT_THAT(ErrorOf("a,b,y\n1,2,0\n1," + cell + ",0\n", {.header = true}),
                AllOf(HasSubstr("t.csv:3: column 2 (b): \""),
                      HasSubstr("is no value: fill it in, or set data.csv.missing: MEAN")));
    EXPECT_THAT(ErrorOf("1,a,0\n1," + cell + ",0\n", {.category = {"1"}}),
                HasSubstr("t.csv:2: column 2: \""));
  }
  // In a column of numbers or dates, the texts None and NaT stand for a missing value. In a category column, these
  // texts are categories like any other text.
  for (const std::string cell : {"None", "NaT", "none"}) {
    EXPECT_THAT(ErrorOf("1,2,0\n1," + cell + ",0\n"), HasSubstr("is no value: fill it in"));
    EXPECT_THAT(ErrorOf(cell + ",0\n", {.date = {"0"}}), HasSubstr("is no value: fill it in"));
    const CsvTable table = Read("1,a,0\n1," + cell + ",0\n", {.category = {"1"}});
    EXPECT_EQ(table.columns[1].categories.size(), 2);
  }
  EXPECT_THAT(ErrorOf("1,\n", {.mean_if_missing = true}),
              HasSubstr("label \"\" is no class number"));
  EXPECT_THAT(ErrorOf("1,NA\n", {.mean_if_missing = true, .label_names = true}),
              HasSubstr("label \"NA\" is no value"));
}

TEST(Csv, RefusesAColumnWithoutANumber) {
  const CsvOptions options{.header = true, .mean_if_missing = true};
  EXPECT_THAT(ErrorOf("a,Cabin,y\n1,,0\n2,NA,1\n", options),
              HasSubstr("column 2 (Cabin): no training row has a number there: add \"Cabin\" to "
                        "data.csv.ignore"));
}

TEST(Csv, NamesTheWholeColumnThatAnOptionShouldHave) {
  const std::string name(100, 'n');
  EXPECT_THAT(ErrorOf(name + ",y\ntext,0\n", {.header = true}),
              HasSubstr("add \"" + name + "\" to data.csv.category or data.csv.ignore"));
  EXPECT_THAT(ErrorOf(name + ",y\n,0\n", {.header = true, .mean_if_missing = true}),
              HasSubstr("add \"" + name + "\" to data.csv.ignore"));
}

TEST(Csv, RefusesTooManyCategories) {
  std::string content = "id,x,y\n";
  for (int i = 0; i < 10000; ++i) content += "n" + std::to_string(i) + ",1,0\n";
  const CsvOptions options{.header = true, .category = {"id"}};
  EXPECT_EQ(Read(content, options).dataset->spec().shape, std::vector<int64_t>{10001});
  EXPECT_THAT(ErrorOf(content + "one more,1,0\n", options),
              HasSubstr("t.csv:10002: column 1 (id): more than 10000 categories: if it tells rows "
                        "apart, add \"id\" to data.csv.ignore, else set "
                        "data.csv.category_min_rows"));
}

TEST(Csv, RefusesTooManyTextsToCount) {
  std::string content;
  for (int i = 0; i < 1000001; ++i) content += std::to_string(i) + ",0\n";
  EXPECT_THAT(ErrorOf(content, {.category = {"0"}, .category_min_rows = 2}),
              HasSubstr("t.csv:1000001: column 1: more than 1000000 different texts: if it tells "
                        "rows apart, add \"0\" to data.csv.ignore"));
}

TEST(Csv, RefusesALabelOutOfRange) {
  const auto read = [](const std::string& label) {
    return ErrorOf("1,0\n1," + label + "\n", {.classes = 3});
  };
  EXPECT_THAT(read("3"),
              HasSubstr("t.csv:2: column 2: label 3 is out of range: data.classes is 3"));
  EXPECT_THAT(read("-1"), HasSubstr("no class number"));
  EXPECT_THAT(read("0.5"), HasSubstr("no class number"));
  EXPECT_THAT(read("x"), HasSubstr("for texts set data.csv.label_names: true"));
  EXPECT_THAT(read("1e30"), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf("1,0\n1,1e9\n"), HasSubstr("set data.classes"));
  EXPECT_THAT(ErrorOf("1,a\n2,b\n", {.label_names = true, .classes = 3}),
              HasSubstr("2 labels where data.classes is 3"));
}

TEST(Csv, RefusesALabelColumnOutsideTheRow) {
  EXPECT_THAT(ErrorOf("1,0\n", {.label_column = 2}), HasSubstr("label_column 2"));
  EXPECT_THAT(ErrorOf("1,0\n", {.label_column = -3}), HasSubstr("label_column -3"));
  EXPECT_THAT(
      ErrorOf("1,0,0\n", {.label_column = 2, .label_columns = 2, .task = Task::kRegression}),
      HasSubstr("2 label columns from data.csv.label_column 2 on: outside the 3 columns"));
}

TEST(Csv, RefusesAColumnThatIsNotThere) {
  const std::string content = "Age,Fare,Survived\n1,2,0\n";
  EXPECT_THAT(ErrorOf(content, {.header = true, .labels = {"Surived"}}),
              HasSubstr("t.csv: data.csv.label: the header has no column \"Surived\"; did you mean "
                        "\"Survived\"?"));
  EXPECT_THAT(
      ErrorOf(content, {.header = true, .ignore = {"age"}}),
      HasSubstr("data.csv.ignore: the header has no column \"age\"; did you mean \"Age\"?"));
  EXPECT_THAT(ErrorOf(content, {.header = true, .category = {"Q"}}),
              HasSubstr("data.csv.category: the header has no column \"Q\""));
  for (const std::string column : {"2", "-1", "x", "", "1.0", "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf("1,0\n", {.ignore = {column}}),
                HasSubstr("data.csv.ignore: no column \"" + column +
                          "\": without a header they are 0 to 1"));
  }
}

TEST(Csv, RefusesAColumnThatIsGivenTwice) {
  const std::string content = "a,b,y\n1,2,0\n";
  EXPECT_THAT(ErrorOf(content, {.header = true, .ignore = {"a"}, .category = {"a"}}),
              HasSubstr("t.csv: column 1 (a) is given twice, as data.csv.ignore and as "
                        "data.csv.category"));
  EXPECT_THAT(ErrorOf(content, {.header = true, .ignore = {"b", "b"}}), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf(content, {.header = true, .ignore = {"y"}}),
              HasSubstr("column 3 (y) is given twice, as the label and as data.csv.ignore"));
  EXPECT_THAT(ErrorOf("a,y\n1,0\n", {.header = true,
                                     .labels = {"y"},
                                     .columns = {{.name = "a"}, {.name = "y"}},
                                     .features = 2}),
              HasSubstr("data.csv.label has \"y\", which data.csv.column or ignore has, too"));
  EXPECT_THAT(ErrorOf("1,0\n", {.category = {"1"}}), HasSubstr("column 2 is given twice"));
  EXPECT_THAT(ErrorOf("a,b,a\n1,2,0\n", {.header = true}),
              HasSubstr("columns 1 and 3 have one name, \"a\""));
  EXPECT_THAT(ErrorOf("1,0\n", {.ignore = {"0"}}), HasSubstr("no column is left to learn from"));
}

TEST(Csv, RefusesAnotherHeader) {
  const auto error = [](const std::string& second) {
    return DataErrorOf([&] {
      ReadCsv({.files = {WriteTestFile("a.csv", "x,z,y\n1,2,0\n"), WriteTestFile("b.csv", second)},
               .header = true});
    });
  };
  EXPECT_THAT(error("x,Z,y\n1,2,0\n"),
              AllOf(HasSubstr("b.csv:1: column 2 is \"Z\" where "), HasSubstr("a.csv has \"z\"")));
  EXPECT_THAT(error("x,y\n1,0\n"), HasSubstr("b.csv:1: 2 columns where "));
}

TEST(Csv, RefusesAFileThatLacksAColumn) {
  const CsvOptions options{.header = true, .labels = {"y"}};
  const CsvTable table = Read("Age,Fare,y\n1,2,0\n", options);
  const auto error = [&](const std::string& content) {
    return DataErrorOf([&] { ReadCsv(AsTrained(options, table, content)); });
  };
  EXPECT_THAT(
      error("Age,fare,y\n1,2,0\n"),
      HasSubstr("other.csv: no column \"Fare\", which training had; did you mean \"fare\"?"));
  EXPECT_THAT(error("Age,Fare\n1,2\n"), HasSubstr("other.csv: no column \"y\", the label"));
  EXPECT_THAT(error("Age,Fare,y,Deck\n1,2,0,3\n"),
              HasSubstr("other.csv: training did not have column 4 (Deck)"));
}

TEST(Csv, RefusesColumnsOfAnotherTable) {
  CsvOptions options{.header = true, .labels = {"y"}, .scaling = CsvScaling::kStandard};
  options.columns = {{.name = "z", .mean = 1, .std = 1}};
  EXPECT_THAT(ErrorOf("x,y\n1,0\n", options), HasSubstr("data.csv.column is not of these columns"));
  options.columns = {{.name = "x", .categories = {"1"}}};
  EXPECT_THAT(ErrorOf("x,y\n1,0\n", options), HasSubstr("data.csv.column is not of these columns"));
  // Nothing is fitted to files that are not training files (`features` is not 0), so the options must have the fitted
  // values.
  EXPECT_THAT(ErrorOf("1,0\n", {.scaling = CsvScaling::kStandard, .features = 1}),
              HasSubstr("data.csv.column does not say what the training files held: train again"));
  EXPECT_THAT(ErrorOf("x,y\n1,0\n", {.header = true, .columns = {{.name = "x"}}, .features = 1}),
              HasSubstr("data.csv.label does not name the training files' labels: train again"));
  EXPECT_THAT(ErrorOf("1,0\n", {.label_names = true, .features = 1}),
              HasSubstr("data.csv.classes does not say"));
}

// ---- Texts --------------------------------------------------------------------------------------

// Options for files that are read with a run's columns x and id, of which id is ignored, and its label y.
CsvOptions TextOptions(std::vector<std::string> files) {
  return {.files = std::move(files),
          .header = true,
          .labels = {"y"},
          .ignore = {"id"},
          .columns = {{.name = "x"}},
          .features = 1,
          .label_optional = true};
}

TEST(CsvTexts, ReadsColumnsInTheOrderInWhichTheyAreAskedFor) {
  const std::string first = WriteTestFile("a.csv", "x,id,y\n1,\"007, a\",0\n\n2,,1\n");
  const std::string second = WriteTestFile("b.csv", "y;x;id\n5;6;7\n");
  const auto columns = ReadCsvTexts(TextOptions({first, second}), {"id", "x"}, "");
  ASSERT_EQ(columns.size(), 2);
  EXPECT_THAT(columns[0], ElementsAre("007, a", "", "7"));
  EXPECT_THAT(columns[1], ElementsAre("1", "2", "6"));
  const CsvOptions bare{.files = {WriteTestFile("c.csv", "5,6,7\n")}};
  EXPECT_THAT(ReadCsvTexts(bare, {"2"}, "").at(0), ElementsAre("7"));
}

TEST(CsvTexts, RefusesColumnsThatAreNotThereAndRaggedRows) {
  const auto error = [](const std::string& content, const std::string& column) {
    return DataErrorOf(
        [&] { ReadCsvTexts(TextOptions({WriteTestFile("a.csv", content)}), {column}, "--id"); });
  };
  EXPECT_THAT(error("id,x\n1,2\n", "Id"),
              HasSubstr("a.csv: --id: the header has no column \"Id\"; did you mean \"id\"?"));
  EXPECT_THAT(error("id,x\n1,2\n3\n", "id"), HasSubstr("a.csv:3: 1 columns where 2 are expected"));
}

TEST(CsvTexts, ReadsATableOfWhichNothingIsKnown) {
  const CsvTextTable table = ReadCsvTextTable(WriteTestFile("a.csv", "id;y\n1;0,5\n2;\"a;b\"\n"));
  EXPECT_EQ(table.delimiter, ';');
  ASSERT_EQ(table.columns.size(), 2);
  EXPECT_EQ(table.columns[0].name, "id");
  EXPECT_THAT(table.columns[1].texts, ElementsAre("0,5", "a;b"));
  EXPECT_THAT(DataErrorOf([] { ReadCsvTextTable(WriteTestFile("a.csv", "a,a\n1,2\n")); }),
              HasSubstr("have one name"));
  EXPECT_THAT(DataErrorOf([] { ReadCsvTextTable(WriteTestFile("a.csv", "a,b\n1,2\n3\n")); }),
              HasSubstr("a.csv:3: 1 columns where 2 are expected"));
}

}  // namespace
}  // namespace lockstep
