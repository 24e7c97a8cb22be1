#include "data/tables/csv_delimiter.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(FindDelimiter, TakesTheOneWithWhichTheRowsHoldNumbers) {
  struct Case {
    const char* text;
    char delimiter;
  };
  for (const Case& file : {
           Case{"a,b\n1,2\n", ','},
           Case{"a;b\n1;2\n", ';'},
           Case{"a\tb\n1\t2\n", '\t'},
           Case{"a|b\n1|2\n", '|'},
           Case{"a;b\n1,5;2,5\n", ';'},
           Case{"1,5;2,5\n3,5;4,5\n", ';'},
           Case{"\"a;x\",b\n\"1;x\",2\n", ','},
           Case{"id;note\n1;\"a, b\"\n2;c\n", ';'},
           Case{"a,b;c,d\ne,f;g,h\n", ','},
           Case{"a\n1\n", ','},
           Case{"", ','},
       }) {
    EXPECT_EQ(FindDelimiter("t.csv", file.text), file.delimiter) << file.text;
  }
}

TEST(FittingDelimiter, TakesTheOneWithWhichTheHeaderHasTheNames) {
  const auto found = [](const std::string& text, char expected) {
    return FittingDelimiter("t.csv", text, expected, [](const CsvRowOfTexts& row) {
      return ShareOfNames({"a", "b, c"}, row);
    });
  };
  EXPECT_EQ(found("a,\"b, c\"\n1,2\n", ','), ',');
  EXPECT_EQ(found("a;b, c\n1;2\n", ','), ';');
  EXPECT_EQ(found("x;b, c\ty\n1;2\t3\n", ';'), ';');
  EXPECT_EQ(found("x\tb, c\n1\t2\n", ';'), '\t');
  // A header without any of the names is that of another table, which the reader of the file says.
  EXPECT_EQ(found("x;y\n1;2\n", '|'), '|');
  EXPECT_EQ(found("", '|'), '|');
}

TEST(FittingDelimiter, LooksAtTheNumbersWhereTheFirstRowLeavesADoubt) {
  const auto found = [](const std::string& text, char expected) {
    return FittingDelimiter("t.csv", text, expected, [](const CsvRowOfTexts& row) {
      return row.size() == 2 || row.size() == 3 ? 0.5 : 0;
    });
  };
  EXPECT_EQ(found("1,5;2,5\n", ','), ';');
  EXPECT_EQ(found("1,5;2,5\n", ';'), ';');
  EXPECT_EQ(found("a b|c d\n", '|'), '|');
  EXPECT_EQ(found("1,2\n", ';'), ',');
}

}  // namespace
}  // namespace lockstep
