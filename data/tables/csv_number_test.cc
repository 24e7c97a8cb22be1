#include "data/tables/csv_number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr auto kPoint = CsvDecimal::kPoint;
constexpr auto kComma = CsvDecimal::kComma;
constexpr auto kCommaAndPoints = CsvDecimal::kCommaAndPoints;

struct Spelling {
  std::string text;
  CsvDecimal decimal;
  double number;
};

TEST(CsvNumber, ReadsNumbersAsPeopleWriteThem) {
  const std::vector<Spelling> spellings{
      {"1281.5", kPoint, 1281.5},
      {" +1.5e3 ", kPoint, 1500},
      {"1,281", kPoint, 1281},
      {"1,281.5", kPoint, 1281.5},
      {"-1,234,567", kPoint, -1234567},
      {"12,34,567.5", kPoint, 1234567.5},
      {"1 281,5", kComma, 1281.5},
      {"1\u00A0281,5", kComma, 1281.5},
      {"1\u202F281.5", kPoint, 1281.5},
      {"1'281.5", kPoint, 1281.5},
      {"1\u2019281.5", kPoint, 1281.5},
      {"1,5", kComma, 1.5},
      {"1,281", kComma, 1.281},
      {"0,125", kComma, 0.125},
      {"1.5", kComma, 1.5},
      {"1.281", kComma, 1.281},
      {"1.281,5", kCommaAndPoints, 1281.5},
      {"1.281", kCommaAndPoints, 1281},
      {"1.281.000", kCommaAndPoints, 1281000},
      {"1281.0", kCommaAndPoints, 1281},
      {"1.28100000000000000e+00", kCommaAndPoints, 1.281},
      {"5.1%", kPoint, 0.051},
      {"5,1 %", kComma, 0.051},
      {"-100%", kPoint, -1},
      {"$602.52", kPoint, 602.52},
      {"-$1,281.50", kPoint, -1281.5},
      {"$-5", kPoint, -5},
      {"US$ 5", kPoint, 5},
      {"602,52 €", kComma, 602.52},
      {"£5", kPoint, 5},
      {"EUR 5", kPoint, 5},
      {"5 USD", kPoint, 5},
      {"(1,281.5)", kPoint, -1281.5},
      {"($5)", kPoint, -5},
      {"\u22125.1", kPoint, -5.1},
      {"1e-45", kPoint, 1e-45},
  };
  for (const Spelling& spelling : spellings) {
    double number = 0;
    ASSERT_TRUE(ParseNumber(spelling.text, spelling.decimal, number)) << spelling.text;
    EXPECT_EQ(number, spelling.number) << spelling.text;
    float narrow = 0;
    ASSERT_TRUE(ParseNumber(spelling.text, spelling.decimal, narrow)) << spelling.text;
    EXPECT_EQ(narrow, static_cast<float>(spelling.number)) << spelling.text;
  }
}

TEST(CsvNumber, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"",           "-",          "$",         "%",        "()",     "one",   "1,5",
        "1,2345",     "0,125",      "12345,678", "1,281,5",  "1..5",   "1.5.2", "+-5",
        "--5",        "5-",         "(-5)",      "5%%",      "$5$",    "5e",    "1e5%",
        "2024-05-31", "31.05.2024", "10.0.0.1",  "06 12 34", "nan",    "inf",   "1e39",
        "1e-5000",    "0x10",       "1_000",     "true",     "EURO 5", "12:30", "ABCD$5",
        "1,,281",     "1 281 5",    ","}) {
    double number = 0;
    EXPECT_FALSE(ParseNumber(text, kPoint, number)) << text;
  }
  for (const char* text : {"1.281,5", "1,5,2", "1,281.5", ",", "1.2.3"}) {
    double number = 0;
    EXPECT_FALSE(ParseNumber(text, kComma, number)) << text;
  }
  for (const char* text : {"1,281.5", "1.28,5", "12.34.567"}) {
    double number = 0;
    EXPECT_FALSE(ParseNumber(text, kCommaAndPoints, number)) << text;
  }
}

CsvDecimal Found(const std::vector<std::string>& cells, char delimiter = ',') {
  DecimalSigns signs;
  for (const std::string& cell : cells) signs.Add(cell);
  return signs.Found(delimiter);
}

TEST(DecimalSigns, AreFoundFromTheCells) {
  EXPECT_EQ(Found({"1", "2.5", "x"}), kPoint);
  EXPECT_EQ(Found({"1,5", "2"}), kComma);
  EXPECT_EQ(Found({"1,281", "0,5"}), kComma);
  EXPECT_EQ(Found({"1,281", "0,125"}), kComma);
  EXPECT_EQ(Found({"1,281", "1281,5"}), kComma);
  EXPECT_EQ(Found({"1,281", "1,281.5"}), kPoint);
  EXPECT_EQ(Found({"1,281", "1,281,000"}), kPoint);
  EXPECT_EQ(Found({"1,281", "2.5"}), kPoint);
  EXPECT_EQ(Found({"1,5", "2.5"}), kComma);
  EXPECT_EQ(Found({"1,5", "1.281,5"}), kCommaAndPoints);
  EXPECT_EQ(Found({"1,5", "1.281.000"}), kCommaAndPoints);
  EXPECT_EQ(Found({"602,52 €", "1.281 €"}), kCommaAndPoints);
  EXPECT_EQ(Found({"950,5", "1.281", "2.5"}), kComma);
  EXPECT_EQ(Found({}), kPoint);
}

TEST(DecimalSigns, TheDelimiterDecidesWhatTheCellsLeaveOpen) {
  EXPECT_EQ(Found({"1,281", "2,500"}), kPoint);
  EXPECT_EQ(Found({"1,281", "2,500"}, ';'), kComma);
  EXPECT_EQ(Found({"1,281", "950"}, ';'), kPoint);
  EXPECT_EQ(Found({"1,281.5", "2,500"}, ';'), kPoint);
}

TEST(DecimalSigns, TellWhatWasFormatted) {
  DecimalSigns signs;
  for (const char* cell : {"5", "+5", "n/a", "$602.52", "5%"}) signs.Add(cell);
  EXPECT_EQ(signs.Example(kPoint), "$602.52");
  EXPECT_FALSE(signs.may_be_either());
  DecimalSigns either;
  either.Add("1,281");
  EXPECT_TRUE(either.may_be_either());
  either.Add("1.281,5");
  EXPECT_FALSE(either.may_be_either());
  EXPECT_EQ(signs.percents(), 1);
  EXPECT_EQ(signs.numbers(), 4);
}

TEST(DecimalSigns, TellOfSeveralCurrencies) {
  const auto told = [](const std::vector<std::string>& cells) {
    DecimalSigns signs;
    for (const std::string& cell : cells) signs.Add(cell);
    return HowRead(signs, kPoint, "");
  };
  EXPECT_EQ(told({"$5", "6 €"}),
            "\"$5\" is read as 5; amounts in $, € are taken alike, without conversion");
  EXPECT_EQ(told({"5", "GBP 6", "CHF 7"}),
            "\"GBP 6\" is read as 6; amounts in GBP, CHF are taken alike, without conversion");
  for (const std::vector<std::string>& one : std::vector<std::vector<std::string>>{
           {"$5", "US$ 6", "7 USD", "8"}, {"€5", "6 EUR"}, {"CA$5", "C$6", "CAD 7"}, {"5%", "6"}}) {
    EXPECT_EQ(told(one).find("alike"), std::string::npos) << one[0];
  }
}

std::vector<CsvDecimal> FoundInFile(const std::vector<std::vector<std::string>>& columns,
                                    const DecimalRule& rule = {.delimiter = ';'}) {
  std::vector<DecimalSigns> signs(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    for (const std::string& cell : columns[i]) signs[i].Add(cell);
  }
  return rule.ForAll(signs);
}

TEST(DecimalRule, TheOtherColumnsOfAFileDecideWhatAColumnLeavesOpen) {
  using testing::ElementsAre;
  EXPECT_THAT(FoundInFile({{"1.281", "950"}, {"0,5"}}), ElementsAre(kCommaAndPoints, kComma));
  EXPECT_THAT(FoundInFile({{"1,281", "950"}, {"0,5"}}), ElementsAre(kComma, kComma));
  EXPECT_THAT(FoundInFile({{"1,281"}, {"0.5"}}), ElementsAre(kPoint, kPoint));
  EXPECT_THAT(FoundInFile({{"1.281"}, {"2"}}), ElementsAre(kPoint, kPoint));
  // No column decides, or columns contradict each other, or texts are among the cells: each column is on its own.
  EXPECT_THAT(FoundInFile({{"1,281"}, {"2"}}), ElementsAre(kComma, kPoint));
  EXPECT_THAT(FoundInFile({{"1.281"}, {"0,5"}, {"0.5"}}), ElementsAre(kPoint, kComma, kPoint));
  EXPECT_THAT(FoundInFile({{"1.281"}, {"0,5", "x"}}), ElementsAre(kPoint, kComma));
  EXPECT_THAT(FoundInFile({{"1.281"}, {"0,5"}}, {.given = kPoint}), ElementsAre(kPoint, kPoint));
}

TEST(DecimalSigns, KnowWhichSignTheNumbersCanHave) {
  const auto fitting = [](const std::vector<std::string>& cells) {
    DecimalSigns signs;
    for (const std::string& cell : cells) signs.Add(cell);
    return std::vector<bool>{signs.Fits(kPoint), signs.Fits(kComma), signs.Fits(kCommaAndPoints)};
  };
  using testing::ElementsAre;
  EXPECT_THAT(fitting({"1,5"}), ElementsAre(false, true, true));
  EXPECT_THAT(fitting({"1.5"}), ElementsAre(true, true, false));
  EXPECT_THAT(fitting({"1.281,5"}), ElementsAre(false, false, true));
  EXPECT_THAT(fitting({"1,281.5"}), ElementsAre(true, false, false));
  EXPECT_THAT(fitting({"1,281", "1.281", "1.5e0", "2"}), ElementsAre(true, true, true));
}

TEST(CsvNumber, ANumberWithAnExponentHasNoGroups) {
  for (const CsvDecimal decimal : {kPoint, kComma, kCommaAndPoints}) {
    double number = 0;
    ASSERT_TRUE(ParseNumber("1.281e0", decimal, number));
    EXPECT_EQ(number, 1.281);
    ASSERT_TRUE(ParseNumber("-1.281000E+03", decimal, number));
    EXPECT_EQ(number, -1281);
  }
  EXPECT_EQ(Found({"1,281E+03"}), kComma);
}

TEST(HasFraction, KnowsTheDecimalSign) {
  EXPECT_TRUE(HasFraction("0.5", kPoint));
  EXPECT_TRUE(HasFraction("0.0", kPoint));
  EXPECT_TRUE(HasFraction("0,5", kComma));
  EXPECT_FALSE(HasFraction("1,281", kPoint));
  EXPECT_FALSE(HasFraction("1.281", kCommaAndPoints));
  EXPECT_FALSE(HasFraction("v1.5", kPoint));
}

TEST(MayHaveFormattedNumbers, MissesNone) {
  for (const char* text :
       {"a\n\"1,5\"\n", "a\n5%\n", "a\n$5\n", "a\n(5)\n", "a\n1'281\n", "a\n1 281\n",
        "a\n1.281.000\n", "a\n5 €\n", "a\nEUR 5\n", "a\nEUR5\n", "a\n5EUR\n", "a\n\u22125\n"}) {
    EXPECT_TRUE(MayHaveFormattedNumbers(text, ',')) << text;
  }
  EXPECT_TRUE(MayHaveFormattedNumbers("a;b\n1,5;2\n", ';'));
  EXPECT_FALSE(MayHaveFormattedNumbers("a,b,name\n1,2.5,x\n-3,+4e5,yes no\n", ','));
  EXPECT_FALSE(MayHaveFormattedNumbers("a;b\n1;2.5\n", ';'));
}

TEST(MayHaveFormattedNumbers, MissesNoneAtAnyPlace) {
  const std::string plain(9000, '7');
  for (size_t at = 4080; at < 4110; ++at) {
    for (const char* number : {"1.281.000", "a 5,", "5%", "EUR5"}) {
      std::string text = plain;
      text.replace(at, std::string_view(number).size(), number);
      text.insert(at, 1, 'x');
      EXPECT_TRUE(MayHaveFormattedNumbers(text, ',')) << number << " at " << at;
    }
  }
  EXPECT_FALSE(MayHaveFormattedNumbers(plain, ','));
  EXPECT_FALSE(MayHaveFormattedNumbers("", ','));
  EXPECT_TRUE(MayHaveFormattedNumbers("%", ','));
}

TEST(IsMissing, KnowsTheTextsOfPandasAndOfOthers) {
  for (const char* text : {"",       " ",       "NA",      "nan",      "NULL", "None",  "NaT",
                           "N/A",    "<NA>",    "#N/A",    "#N/A N/A", "#NA",  "-NaN",  "n/a",
                           "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "\\N",  " none "}) {
    EXPECT_TRUE(IsMissing(text)) << text;
  }
  for (const char* text : {"0", "-", "?", "no", "nano", "none of them", "NAN2", "-1"}) {
    EXPECT_FALSE(IsMissing(text)) << text;
  }
  EXPECT_TRUE(IsMissingText("NA"));
  EXPECT_TRUE(IsMissingText(""));
  for (const char* text : {"None", "N/A", "NaT", "<NA>"}) EXPECT_FALSE(IsMissingText(text)) << text;
}

TEST(TruthOf, IsReadInSmallOrCapitalLetters) {
  EXPECT_EQ(TruthOf("TRUE"), true);
  EXPECT_EQ(TruthOf(" False "), false);
  EXPECT_EQ(TruthOf("yes"), std::nullopt);
  EXPECT_EQ(TruthOf("true or not"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
