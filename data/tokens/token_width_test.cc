#include "data/tokens/token_width.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

// Files that NumPy wrote are read in tests/binary_files_test.py.
namespace lockstep {
namespace {

using testing::HasSubstr;

// Returns tokens below `vocabulary`, each as `parts` numbers of 16 bits.
std::vector<uint16_t> TokensOf(size_t count, uint32_t vocabulary, size_t parts) {
  std::vector<uint16_t> numbers;
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto token = static_cast<uint32_t>((state >> 33) % vocabulary);
    for (size_t part = 0; part < parts; ++part) {
      numbers.push_back(part < 2 ? static_cast<uint16_t>(token >> 16 * part) : 0);
    }
  }
  return numbers;
}

TEST(TokenWidth, SixteenBitsMayHoldAnything) {
  for (const uint32_t vocabulary : {1, 2, 3, 65, 257, 1000, 50257, 65536}) {
    for (const size_t count : {1, 4, 10, 50, 1000, 200'000}) {
      EXPECT_EQ(WhyNot16Bits(TokensOf(count, vocabulary, 1)), "") << vocabulary << " " << count;
    }
  }
  std::vector<uint16_t> regular(1000);
  for (size_t i = 0; i < regular.size(); i += 2) regular[i] = 7;
  EXPECT_EQ(WhyNot16Bits(regular), "");
  EXPECT_EQ(WhyNot16Bits({}), "");
}

TEST(TokenWidth, OtherWidthsShow) {
  for (const uint32_t vocabulary : {5, 65, 257, 50257, 128'256, 262'144}) {
    for (const size_t count : {100, 1000, 200'000}) {
      EXPECT_THAT(WhyNot16Bits(TokensOf(count, vocabulary, 2)), HasSubstr("have 32 bits (every"))
          << vocabulary << " " << count;
      EXPECT_THAT(WhyNot16Bits(TokensOf(count, vocabulary, 4)), HasSubstr("have 64 bits (three"))
          << vocabulary << " " << count;
    }
  }
}

// Tokens above 65,535 must not be cut to 16 bits by the advice, also if the numbers that are looked at have none.
TEST(TokenWidth, AdviceLosesNoToken) {
  std::vector<uint16_t> tokens = TokensOf(200'000, 50257, 2);
  EXPECT_THAT(WhyNot16Bits(tokens), HasSubstr("write them so (numpy.fromfile(FILE, \"<u4\")"));
  tokens[2 * 70'000 + 1] = 1;
  EXPECT_THAT(WhyNot16Bits(tokens), HasSubstr("16 bits are read, which hold no token above 65535"));
}

}  // namespace
}  // namespace lockstep
