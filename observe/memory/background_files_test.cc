#include "observe/memory/background_files.h"

#include <gtest/gtest.h>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

TEST(BackgroundFiles, WritesAFileAndItsFolder) {
  const std::string path = NewPath() + "/memory/step-2.pickle";
  const std::string content(3 << 20, 'x');
  {
    BackgroundFiles files;
    files.Write(path, content);
  }
  EXPECT_TRUE(ReadFile(path) == content);
}

TEST(BackgroundFiles, SaysWhatCannotBeWritten) {
  const std::string path = NewPath();
  WriteFile(path, "a file where the folder is to be");
  BackgroundFiles files;
  files.Write(path + "/step-2.pickle", "content");
  std::vector<std::string> errors;
  while (errors.empty()) errors = files.TakeErrors();
  ASSERT_EQ(errors.size(), 1);
  EXPECT_NE(errors[0].find(path), std::string::npos) << errors[0];
  EXPECT_TRUE(files.TakeErrors().empty());
}

}  // namespace
}  // namespace lockstep
