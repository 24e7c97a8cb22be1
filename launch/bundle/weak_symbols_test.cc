#include "launch/bundle/weak_symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Returns the bytes of this test program, which calls functions of glibc.
std::string ThisProgram() { return ReadFile("/proc/self/exe"); }

// Returns how many bytes differ between `a` and `b`, which must have the same size.
int Differences(const std::string& a, const std::string& b) {
  int count = a.size() == b.size() ? 0 : -1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

TEST(WeakSymbols, ChangesNothingWithoutTheFunction) {
  std::string program = ThisProgram();
  MakeWeak(program, {"no_such_function"});
  EXPECT_EQ(Differences(program, ThisProgram()), 0);
}

TEST(WeakSymbols, LeavesAVersionThatOtherFunctionsNeed) {
  EXPECT_GT(getppid(), 0);
  std::string program = ThisProgram();
  MakeWeak(program, {"getppid"});
  EXPECT_EQ(Differences(program, ThisProgram()), 1);
}

TEST(WeakSymbols, ChangesAVersionThatNothingElseNeeds) {
  char byte = 0;
  EXPECT_EQ(getentropy(&byte, 1), 0);  // this program needs GLIBC_2.25 for this function only
  std::string program = ThisProgram();
  MakeWeak(program, {"getentropy"});
  // At least one byte differs in each of three fields: the version's name, the version's hash, and the symbol's
  // binding.
  EXPECT_GT(Differences(program, ThisProgram()), 2);
}

TEST(WeakSymbols, RefusesWhatIsNoLibrary) {
  std::string text(1000, 'x');
  EXPECT_THAT(MessageOf(ExitStatus::kBug, [&] { MakeWeak(text, {"f"}); }),
              HasSubstr("no shared library of 64 bits"));
  std::string begin = ThisProgram().substr(0, 200);
  EXPECT_THAT(MessageOf(ExitStatus::kBug, [&] { MakeWeak(begin, {"f"}); }), HasSubstr("cut short"));
}

}  // namespace
}  // namespace lockstep
