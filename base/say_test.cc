#include "base/say.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Say, ShowsWhatWouldMoveACursor) {
  EXPECT_EQ(Printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printable("bell\a delete\x7f"), "bell\\x07 delete\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");
}

TEST(Say, LeavesTextAlone) {
  for (const char* text : {"two\nlines\tand a tab",
                           "Stra\xc3\x9f"
                           "e \xe6\x97\xa5\xe6\x9c\xac",
                           "no UTF-8: \xff\xc2", ""}) {
    EXPECT_EQ(Printable(text), text);
  }
}

}  // namespace
}  // namespace lockstep
