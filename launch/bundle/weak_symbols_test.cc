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

// Returns how many bytes differ between `a` and `b`; the sizes must be the same.
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
  EXPECT_EQ(getentropy(&byte, 1), 0);  // the only function of GLIBC_2.25 in this program
  std::string program = ThisProgram();
  MakeWeak(program, {"getentropy"});
  // These bytes differ: the version's name and its hash, and the binding of the symbol.
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
