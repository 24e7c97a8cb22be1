#include "observe/page/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

TEST(Token, IsAnotherEachTime) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(NewToken());
  EXPECT_EQ(tokens.size(), 100);
  for (const std::string& token : tokens) EXPECT_THAT(token, testing::MatchesRegex("[0-9a-f]{32}"));
}

TEST(Token, DiffersInAnyCharacter) {
  const std::string token = NewToken();
  EXPECT_TRUE(IsSameToken(token, token));
  for (size_t i = 0; i < token.size(); ++i) {
    std::string other = token;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_FALSE(IsSameToken(other, token));
  }
  EXPECT_FALSE(IsSameToken("", token));
  EXPECT_FALSE(IsSameToken(token.substr(1), token));
  EXPECT_FALSE(IsSameToken(token + "0", token));
}

}  // namespace
}  // namespace lockstep
