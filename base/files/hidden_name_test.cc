#include "base/files/hidden_name.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(HiddenName, IsThatOfNoData) {
  for (const char* name :
       {".ipynb_checkpoints", ".git", ".DS_Store", "._1.jpg", ".jpg", "..jpg", "__MACOSX", "@eaDir",
        "$RECYCLE.BIN", "System Volume Information", "lost+found"}) {
    EXPECT_TRUE(IsHiddenName(name)) << name;
    EXPECT_TRUE(HasHiddenName(name)) << name;
    EXPECT_TRUE(HasHiddenName(std::string(name) + "/1.jpg")) << name;
    EXPECT_TRUE(HasHiddenName("a/b.c/" + std::string(name) + "/1.jpg")) << name;
    EXPECT_TRUE(HasHiddenName("a/" + std::string(name))) << name;
  }
  for (const char* name : {"dog", "a.jpg", "1..jpg", "_1.jpg", "__background__", "MACOSX", "eaDir",
                           "lost", "__MACOSX.jpg", " .jpg"}) {
    EXPECT_FALSE(IsHiddenName(name)) << name;
    EXPECT_FALSE(HasHiddenName("a/" + std::string(name) + "/1.jpg")) << name;
  }
  for (const char* path : {"./a/1.jpg", "../a/1.jpg", "a/../b/./1.jpg", "/a/1.jpg", "", "a//1.jpg"})
    EXPECT_FALSE(HasHiddenName(path)) << path;
}

}  // namespace
}  // namespace lockstep
