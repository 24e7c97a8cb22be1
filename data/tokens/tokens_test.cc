#include "data/tokens/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Returns the bytes of a file of `tokens`: llm.c's header if `header` is true, and then the tokens as 16-bit numbers.
std::string TokenBytes(const std::vector<uint16_t>& tokens, bool header) {
  std::string bytes;
  if (header) {
    std::vector<int32_t> numbers(256);
    numbers[0] = 20240520;
    numbers[1] = 1;
    numbers[2] = static_cast<int32_t>(tokens.size());
    bytes.assign(reinterpret_cast<const char*>(numbers.data()), 1024);
  }
  return bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

std::vector<int64_t> TokensOf(const Dataset& dataset, int64_t index) {
  std::vector<int64_t> both((dataset.spec().bytes() + dataset.spec().target_bytes()) / 8);
  auto* input = reinterpret_cast<std::byte*>(both.data());
  dataset.Read(index, 0, input, input + dataset.spec().bytes());
  return both;
}

TEST(Tokens, ReadsBothFormats) {
  const std::string plain = WriteTestFile("plain.bin", TokenBytes({0, 1, 2, 3, 4, 5, 6}, false));
  const std::string headed = WriteTestFile("headed.bin", TokenBytes({7, 65535, 9}, true));
  const auto dataset = MapTokens({.files = {plain, headed}, .length = 2, .classes = 65536});
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(TokensOf(*dataset, 0), (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(TokensOf(*dataset, 2), (std::vector<int64_t>{4, 5, 5, 6}));
  EXPECT_EQ(TokensOf(*dataset, 3), (std::vector<int64_t>{7, 65535, 65535, 9}));
}

TEST(Tokens, RefusesWhatIsNoTokenFile) {
  const auto error = [](const std::string& bytes) {
    return DataErrorOf([&] { MapTokens({.files = {WriteTestFile("t.bin", bytes)}, .length = 2}); });
  };
  EXPECT_THAT(error(""), HasSubstr("t.bin: the file is empty"));
  EXPECT_THAT(error("abcdefg"), HasSubstr("7 bytes of tokens where an even number"));
  EXPECT_THAT(error(TokenBytes({1, 2, 3}, true) + "ab"),
              HasSubstr("8 bytes of tokens where 6 are"));
  EXPECT_THAT(error(TokenBytes({1, 2}, false)), HasSubstr("2 tokens are too few"));
  EXPECT_THAT(DataErrorOf([] { MapTokens({.files = {"/none.bin"}}); }), HasSubstr("No such file"));
}

TEST(Tokens, RefusesOtherWidths) {
  const auto error = [](const std::string& bytes) {
    return DataErrorOf([&] { MapTokens({.files = {WriteTestFile("t.bin", bytes)}, .length = 2}); });
  };
  // 12 tokens of 32 bits are the fewest that are recognized for sure; two of them may be 16-bit tokens.
  std::vector<uint16_t> wide;
  for (uint16_t token = 1; token <= 12; ++token) wide.insert(wide.end(), {token, 0});
  EXPECT_THAT(error(TokenBytes(wide, false)),
              HasSubstr("t.bin: its tokens have 32 bits (every second of its 16-bit numbers is 0): "
                        "16 bits are read: write them so (numpy.fromfile(FILE, \"<u4\")"));
  EXPECT_EQ(
      MapTokens({.files = {WriteTestFile("t.bin", TokenBytes({1, 0, 2, 0}, false))}, .length = 2})
          ->size(),
      1);
  EXPECT_EQ(
      MapTokens({.files = {WriteTestFile("t.bin", TokenBytes(wide, true))}, .length = 2})->size(),
      11);
  std::string header = TokenBytes(wide, true);
  header[8] = 12;  // half of the number of tokens
  EXPECT_THAT(error(header), HasSubstr("its tokens have 32 bits, as its header and its size say"));
  const int32_t llama[] = {20240801, 7, 12};
  header.replace(0, sizeof(llama), reinterpret_cast<const char*>(llama), sizeof(llama));
  EXPECT_THAT(error(header), HasSubstr("its tokens have 32 bits (llm.c's magic number 20240801, "
                                       "version 7): 16 bits are read: write them so "
                                       "(numpy.fromfile(FILE, \"<u4\", offset=1024)"));
  EXPECT_THAT(error("\x93NUMPY" + std::string(100, 'x')), HasSubstr("t.bin: a .npy array: give"));
}

TEST(Tokens, RefusesATokenOutOfRange) {
  const std::string path = WriteTestFile("t.bin", TokenBytes({1, 2, 3, 50, 4}, false));
  const auto dataset = MapTokens({.files = {path}, .length = 2, .classes = 50});
  EXPECT_THAT(DataErrorOf([&] { TokensOf(*dataset, 1); }), HasSubstr("t.bin: token 3 is 50"));
}

}  // namespace
}  // namespace lockstep
