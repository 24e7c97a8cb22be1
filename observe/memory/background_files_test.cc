#include "observe/memory/background_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

TEST(BackgroundFiles, WritesAFileAndItsFolder) {
  const std::string path = NewFolder() + "/memory/step-2.pickle";
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
  files.Wait();
  const std::vector<std::string> errors = files.TakeErrors();
  ASSERT_EQ(errors.size(), 1);
  EXPECT_NE(errors[0].find(path), std::string::npos) << errors[0];
  EXPECT_TRUE(files.TakeErrors().empty());
}

// Checks that Write() creates only the file's folder and no folder above it, so that a run folder that the user has
// deleted stays deleted.
TEST(BackgroundFiles, MakesOneFolderAtMost) {
  const std::string path = NewPath();
  BackgroundFiles files;
  files.Write(path + "/memory/step-2.pickle", "content");
  files.Wait();
  EXPECT_EQ(files.TakeErrors().size(), 1);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(BackgroundFiles, WritesInTurns) {
  const std::string folder = NewFolder();
  {
    BackgroundFiles files;
    std::vector<std::jthread> threads;
    for (const char* name : {"/a", "/b", "/c"}) {
      threads.emplace_back([&files, path = folder + name] {
        for (int i = 0; i < 20; ++i) files.Write(path, path + std::to_string(i));
      });
    }
  }
  for (const std::string name : {"/a", "/b", "/c"}) {
    EXPECT_EQ(ReadFile(folder + name), folder + name + "19");
  }
}

}  // namespace
}  // namespace lockstep
