#include "data/tables/csv_spelling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::string KeyAmongNumbers(std::string_view text) {
  return ColumnKeys(std::vector<std::string>{"1", "2.5", "NA", ""}, {})(text);
}

TEST(ColumnKeys, AreThoseOfTheNumbers) {
  const auto key = KeyAmongNumbers;
  for (const char* text : {"1", "1.0", "01", "+1", "1e0", "0.1e1", "1.", " 1 ", "10e-1", "1.000",
                           "100%", "$1", "True"}) {
    EXPECT_EQ(key(text), key("1")) << text;
  }
  EXPECT_EQ(key("-0.0"), key("0"));
  EXPECT_EQ(key("0.10"), key(".1"));
  EXPECT_EQ(key("1e3"), key("1,000"));
  EXPECT_EQ(key("0.1"), key("0.1000000000000000055"));
  EXPECT_EQ(key(" a b "), "a b");
  EXPECT_NE(key("1"), key("-1"));
  EXPECT_NE(key("1"), key("10"));
  EXPECT_NE(key("0.1"), key("0.10000000000000002"));
  // A double cannot tell these ids apart.
  EXPECT_NE(key("12345678901234567890"), key("12345678901234567891"));
  for (const char* text : {"1a", "1.2.3", "1e", "e1", "+-1", "--1", ".", "1e9999999999", "0x1"}) {
    EXPECT_EQ(key(text), text);
  }
}

TEST(ColumnKeys, KnowTheColumnsDecimalSign) {
  const ColumnKeys key(std::vector<std::string>{"1,5", "2,25"}, {});
  EXPECT_EQ(key("1,5"), key("1.50"));
  EXPECT_EQ(key("2,250"), key("2.25"));
  EXPECT_NE(key("1,500", CsvDecimal::kPoint), key("1.5"));
}

TEST(ColumnKeys, KnowWhatTheDelimiterSaysOfACommaThatMayBeEither) {
  const std::vector<std::string> texts{"1,281", "2,500"};
  EXPECT_EQ(ColumnKeys(texts, {.delimiter = ','})("1,281"), KeyAmongNumbers("1281"));
  EXPECT_EQ(ColumnKeys(texts, {.delimiter = ';'})("1,281"), KeyAmongNumbers("1.281"));
  EXPECT_EQ(ColumnKeys(texts, {.given = CsvDecimal::kComma})("2,500"), KeyAmongNumbers("2.5"));
}

TEST(ColumnKeys, AreThoseOfTruthValues) {
  const ColumnKeys key(std::vector<std::string>{"True", "FALSE"}, {});
  EXPECT_EQ(key("true"), key("1.0"));
  EXPECT_EQ(key("False"), key("0"));
  EXPECT_NE(key("True"), key("False"));
}

TEST(ColumnKeys, AreTheTextsOfOtherColumns) {
  const ColumnKeys key(std::vector<std::string>{"007", "7", "A1"}, {});
  EXPECT_EQ(key("7.0"), key("7"));
  EXPECT_NE(key("07"), key("7"));
  EXPECT_NE(key("True"), key("true"));
}

TextCounts Merged(TextCounts counts) {
  MergeSpellings(counts, {});
  return counts;
}

TEST(MergeSpellings, JoinsNumbersIfAllAreNumbers) {
  EXPECT_THAT(Merged({{"1", 2}, {"1.0", 3}, {"01", 1}, {"2", 1}, {"", 4}}),
              ElementsAre(Pair("", 4), Pair("1", 6), Pair("2", 1)));
  EXPECT_THAT(Merged({{"007", 1}, {"7", 1}}), ElementsAre(Pair("7", 2)));
  EXPECT_THAT(Merged({{"1.10", 1}, {"1.1", 1}}), ElementsAre(Pair("1.1", 2)));
  EXPECT_THAT(Merged({{"True", 1}, {"true", 2}, {"FALSE", 1}}),
              ElementsAre(Pair("FALSE", 1), Pair("True", 3)));
}

TEST(MergeSpellings, LeavesNamesAsTheyAre) {
  EXPECT_THAT(
      Merged({{"007", 1}, {"7", 1}, {"7.0", 1}, {"x", 1}, {"1.10", 1}, {"1.1", 1}}),
      ElementsAre(Pair("007", 1), Pair("1.1", 1), Pair("1.10", 1), Pair("7", 2), Pair("x", 1)));
  EXPECT_THAT(Merged({{"true", 1}, {"True", 1}, {"maybe", 1}}),
              ElementsAre(Pair("True", 1), Pair("maybe", 1), Pair("true", 1)));
  EXPECT_THAT(Merged({{" a", 1}, {"a", 1}}), ElementsAre(Pair("a", 2)));
}

TEST(UnifySpellings, ReplacesEachTextByTheSpellingThatStays) {
  std::vector<std::string> texts{"1.0", "2", "1", "02", "NA", "1,000", "1000"};
  UnifySpellings(texts, {});
  EXPECT_THAT(texts, ElementsAre("1", "2", "1", "2", "NA", "1000", "1000"));
}

TEST(MergeSpellings, KeepsCurrenciesApart) {
  EXPECT_THAT(Merged({{"$5", 1}, {"5 USD", 1}, {"5", 1}}), ElementsAre(Pair("5", 3)));
  EXPECT_THAT(Merged({{"$5", 1}, {"€5", 2}}), ElementsAre(Pair("$5", 1), Pair("€5", 2)));
}

TEST(TextIndex, FindsATextOrItsValue) {
  const std::vector<std::string> texts{"007", "7", "x"};
  const TextIndex index(texts, {});
  EXPECT_EQ(index.Find("007"), 0);
  EXPECT_EQ(index.Find("7"), 1);
  EXPECT_EQ(index.Find("7.0"), 1);
  EXPECT_EQ(index.Find("07"), -1);
  EXPECT_EQ(index.Find("x "), 2);
  EXPECT_EQ(index.Find("y"), -1);
  EXPECT_EQ(index.FindSame("7.0"), -1);
}

TEST(TextIndex, FindsATextOfAFileWithAnotherDecimalSign) {
  const std::vector<std::string> classes{"0", "1.5"};
  const TextIndex index(classes, {});
  EXPECT_EQ(index.Find("0,0", CsvDecimal::kComma), 0);
  EXPECT_EQ(index.Find("1,50", CsvDecimal::kComma), 1);
  EXPECT_EQ(index.Find("1,50"), -1);
}

}  // namespace
}  // namespace lockstep
