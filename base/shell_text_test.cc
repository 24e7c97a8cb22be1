#include "base/shell_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ShellText, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellText({"mpirun", "-n", "2", "a b", "it's", ""}), "mpirun -n 2 'a b' 'it'\\''s' ''");
}

}  // namespace
}  // namespace lockstep
