#include "base/files/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string WhyNot(const std::string& path, int own_names, int flags = O_RDONLY) {
  std::string why;
  const FileDescriptor file = OpenPlainFile(path, own_names, flags, why);
  EXPECT_EQ(file.get() < 0, !why.empty());
  return why;
}

TEST(OpenFile, SaysWhyThereIsNone) {
  EXPECT_EQ(WhyNot("/nowhere/x", kGivenByUser), "No such file or directory");
  EXPECT_EQ(WhyNot("/nowhere/x", kInRunFolder), "No such file or directory");
  EXPECT_EQ(WhyNot(NewFolder() + "/checkpoints/step/file", kInCheckpoint),
            "checkpoints: No such file or directory");
}

TEST(OpenFile, OpensPlainFilesOnly) {
  const std::string folder = NewFolder();
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket = folder + "/socket";
  ASSERT_EQ(mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
  for (const int own_names : {kGivenByUser, kInRunFolder}) {
    for (const int flags : {O_RDONLY, O_RDWR | O_CREAT, O_WRONLY}) {
      EXPECT_EQ(WhyNot(pipe, own_names, flags), "it is a pipe");
      EXPECT_EQ(WhyNot(folder, own_names, flags), "it is a folder");
      EXPECT_EQ(WhyNot(socket, own_names, flags), "it is a socket");
      EXPECT_EQ(WhyNot("/dev/null", own_names, flags), "it is a device");
    }
  }
}

TEST(OpenFile, FollowsNoLinkBelowItsFolder) {
  const std::string folder = NewFolder();
  const std::string outside = NewFolder();
  WriteFile(outside + "/file", "kept");
  std::filesystem::create_directories(folder + "/checkpoints");
  std::filesystem::create_symlink(outside + "/file", folder + "/file");
  std::filesystem::create_symlink(outside, folder + "/checkpoints/step");
  std::filesystem::create_symlink(outside + "/new", folder + "/new");
  EXPECT_EQ(WhyNot(folder + "/file", kInRunFolder), "it is a link");
  EXPECT_EQ(WhyNot(folder + "/new", kInRunFolder, O_WRONLY | O_CREAT), "it is a link");
  EXPECT_EQ(WhyNot(folder + "/checkpoints/step/file", kInCheckpoint), "step: it is a link");
  EXPECT_FALSE(std::filesystem::exists(outside + "/new"));
  EXPECT_EQ(WhyNot(folder + "/file", kGivenByUser), "");
  // The user gave the path of the run folder itself, so this path may contain links.
  std::filesystem::create_directory_symlink(outside, folder + "/way");
  EXPECT_EQ(WhyNot(folder + "/way/file", kInRunFolder), "");
}

TEST(OpenFile, ReadsNoMoreThanMakesSense) {
  const std::string path = NewPath();
  WriteFile(path, "four");
  std::string why;
  EXPECT_EQ(ReadPlainFile(path, kGivenByUser, 4, why), "four");
  EXPECT_EQ(why, "");
  EXPECT_EQ(ReadPlainFile(path, kGivenByUser, 3, why), "");
  EXPECT_THAT(why, HasSubstr("it has 4 bytes, more than the 3"));
  EXPECT_EQ(ReadPlainFile(path + "/x", kGivenByUser, 3, why), "");
  EXPECT_EQ(why, "Not a directory");
}

TEST(OpenFile, ReadsWhatAUserGives) {
  std::string why;
  const std::string path = NewPath();
  WriteFile(path, "text");
  EXPECT_EQ(ReadGivenFile(path, 4, why), "text");
  EXPECT_EQ(why, "");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  ASSERT_EQ(write(writing.get(), "piped", 5), 5);
  writing = {};
  EXPECT_EQ(ReadGivenFile(fmt::format("/dev/fd/{}", reading.get()), 100, why), "piped");
  EXPECT_EQ(why, "");
  EXPECT_EQ(ReadGivenFile("/dev/zero", 1 << 20, why), "");
  EXPECT_THAT(why, HasSubstr("more than the 1048576 bytes"));
  EXPECT_EQ(ReadGivenFile(NewFolder(), 4, why), "");
  EXPECT_EQ(why, "it is a folder");
  const std::string pipe = NewPath();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadGivenFile(pipe, 4, why), "");
  EXPECT_THAT(why, HasSubstr("it is a pipe, and nothing came out of it"));
}

}  // namespace
}  // namespace lockstep
