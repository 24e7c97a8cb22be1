#include "base/files/scratch_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(ScratchFolder, GoesWithAllThatIsInIt) {
  const std::string parent = NewFolder();
  std::string path;
  {
    const ScratchFolder scratch(parent);
    path = scratch.path();
    EXPECT_TRUE(path.starts_with(parent + "/lockstep-scratch-")) << path;
    WriteFile(path + "/deep/er/file", "x");
    fs::create_symlink(parent, path + "/link");  // the target of the link must not be removed
  }
  EXPECT_TRUE(fs::exists(parent));
  EXPECT_FALSE(fs::exists(path));
}

TEST(ScratchFolder, LeavesOthersAlone) {
  const std::string parent = NewFolder();
  WriteFile(parent + "/other/file", "x");
  const ScratchFolder first(parent);
  WriteFile(first.path() + "/file", "x");
  const ScratchFolder second(parent);
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(fs::exists(first.path() + "/file"));
  EXPECT_TRUE(fs::exists(parent + "/other/file"));
}

TEST(ScratchFolder, RemovesWhatAKilledOneLeft) {
  const std::string parent = NewFolder();
  const pid_t child = fork();
  if (child == 0) {
    const ScratchFolder scratch(parent);
    WriteFile(scratch.path() + "/deep/file", "x");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_FALSE(fs::is_empty(parent));
  { const ScratchFolder next(parent); }
  EXPECT_TRUE(fs::is_empty(parent));
}

TEST(ScratchFolder, DoesWithout) { EXPECT_EQ(ScratchFolder(NewPath()).path(), ""); }

}  // namespace
}  // namespace lockstep
