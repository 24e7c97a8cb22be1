#include "data/tables/csv_spelling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ValueKey, IsThatOfTheNumber) {
  for (const char* text : {"1", "1.0", "01", "+1", "1e0", "0.1e1", "1.", " 1 ", "10e-1", "1.000"}) {
    EXPECT_EQ(ValueKey(text), ValueKey("1")) << text;
  }
  EXPECT_EQ(ValueKey("-0.0"), ValueKey("0"));
  EXPECT_EQ(ValueKey("0.10"), ValueKey(".1"));
  EXPECT_EQ(ValueKey("1e3"), ValueKey("1000"));
  EXPECT_EQ(ValueKey("0.1"), ValueKey("0.1000000000000000055"));
  EXPECT_EQ(ValueKey("True"), ValueKey("true"));
  EXPECT_EQ(ValueKey("FALSE"), ValueKey("False"));
  EXPECT_EQ(ValueKey(" a b "), "a b");
}

TEST(ValueKey, DiffersForOtherValues) {
  EXPECT_NE(ValueKey("1"), ValueKey("-1"));
  EXPECT_NE(ValueKey("1"), ValueKey("10"));
  EXPECT_NE(ValueKey("1"), ValueKey("true"));
  EXPECT_NE(ValueKey("0.1"), ValueKey("0.10000000000000002"));
  // A double cannot tell these ids apart.
  EXPECT_NE(ValueKey("12345678901234567890"), ValueKey("12345678901234567891"));
  for (const char* text : {"1a", "1.2.3", "1e", "e1", "+-1", "--1", ".", "1e9999999999", "0x1"}) {
    EXPECT_EQ(ValueKey(text), text);
  }
}

TextCounts Merged(TextCounts counts) {
  MergeSpellings(counts);
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
  std::vector<std::string> texts{"1.0", "2", "1", "02"};
  UnifySpellings(texts);
  EXPECT_THAT(texts, ElementsAre("1", "2", "1", "2"));
}

TEST(TextIndex, FindsATextOrItsValue) {
  const std::vector<std::string> texts{"7", "007", "x"};
  const TextIndex index(texts);
  EXPECT_EQ(index.Find("7"), 0);
  EXPECT_EQ(index.Find("007"), 1);
  EXPECT_EQ(index.Find("7.0"), 0);
  EXPECT_EQ(index.Find("x "), 2);
  EXPECT_EQ(index.Find("y"), -1);
  EXPECT_EQ(index.FindSame("7.0"), -1);
}

}  // namespace
}  // namespace lockstep
