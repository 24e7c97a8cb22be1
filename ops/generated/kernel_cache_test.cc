#include "ops/generated/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/files/scratch_folder.h"
#include "base/testing/test_files.h"

namespace lockstep::ops {
namespace {

TEST(KernelFolderTest, IsOneThatOnlyTheUserCanWriteTo) {
  const ScratchFolder scratch;
  const std::string cache = scratch.path() + "/cache";
  const std::string folder = KernelFolder(cache);
  EXPECT_EQ(folder, cache + "/kernels");
  EXPECT_EQ(KernelFolder(cache), folder);
  chmod(folder.c_str(), 0777);
  EXPECT_EQ(KernelFolder(cache), "");
  std::filesystem::remove(folder);
  std::filesystem::create_symlink(scratch.path(), folder);
  EXPECT_EQ(KernelFolder(cache), "");
  EXPECT_EQ(KernelFolder(""), "");
  EXPECT_EQ(KernelFolder("/dev/null/no"), "");
}

TEST(KernelFile, IsKept) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/kernel";
  EXPECT_FALSE(KeptKernel(path));
  KeepKernel(path, "content");
  EXPECT_EQ(KeptKernel(path), "content");
}

TEST(KernelFile, DamagedOrCutShortIsNone) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/kernel";
  KeepKernel(path, "content");
  const std::string whole = ReadFile(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    EXPECT_FALSE(KeptKernel(path)) << size;
    std::string changed = whole;
    changed[size] = static_cast<char>(changed[size] ^ 1);
    WriteFile(path, changed);
    EXPECT_FALSE(KeptKernel(path)) << size;
  }
}

TEST(KernelFile, AFolderThatCannotBeWrittenKeepsNothing) {
  KeepKernel("/dev/null/no/kernel", "content");
  EXPECT_FALSE(KeptKernel("/dev/null/no/kernel"));
}

}  // namespace
}  // namespace lockstep::ops
