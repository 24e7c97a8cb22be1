#include "base/files/output_target.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

void WriteTo(const std::string& path, const std::string& text) {
  OutputTarget(path, {}).Write(
      [&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
}

std::string ErrorOf(const std::string& path) {
  return MessageOf(ExitStatus::kCheckpoint, [&] { OutputTarget target(path, {}); });
}

TEST(OutputTarget, ReplacesPlainFilesAndLinksStay) {
  const std::string folder = NewFolder();
  WriteFile(folder + "/file", "before");
  std::filesystem::create_symlink("file", folder + "/link");
  std::filesystem::create_symlink("link", folder + "/second");
  struct stat before {
  }, after{};
  ASSERT_EQ(stat((folder + "/file").c_str(), &before), 0);
  WriteTo(folder + "/second", "after");
  ASSERT_EQ(stat((folder + "/file").c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino);  // the file was replaced by a rename
  EXPECT_EQ(ReadFile(folder + "/file"), "after");
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link"));
  std::filesystem::create_symlink("made", folder + "/third");
  WriteTo(folder + "/third", "new");
  EXPECT_EQ(ReadFile(folder + "/made"), "new");
}

TEST(OutputTarget, KeepsTheCommandsInputs) {
  const std::string folder = NewFolder();
  const std::string input = folder + "/input";
  WriteFile(input, "before");
  std::filesystem::create_symlink("input", folder + "/link");
  std::filesystem::create_symlink("link", folder + "/second");
  std::filesystem::create_hard_link(input, folder + "/hard");
  std::filesystem::create_directory(folder + "/below");
  const FileDescriptor open_input(open(input.c_str(), O_RDWR | O_CLOEXEC));
  KeptFiles kept;
  kept.Add(folder + "/second", "the input");
  for (const std::string& output :
       {input, folder + "/link", folder + "/second", folder + "/hard", folder + "/below/../input",
        fmt::format("/dev/fd/{}", open_input.get())}) {
    EXPECT_EQ(MessageOf(ExitStatus::kUsage, [&] { OutputTarget(output, kept); }),
              output + ": is the input, which an output does not replace: name another file");
  }
  EXPECT_EQ(ReadFile(input), "before");
  OutputTarget(folder + "/other", kept).Write([](const AppendBytes&) {});
}

TEST(OutputTarget, KeepsFilesOfRunsBehindDescriptors) {
  const std::string run = NewFolder();
  WriteFile(run + "/log.jsonl", "{}\n");
  WriteFile(run + "/other", "");
  const FileDescriptor log(open((run + "/log.jsonl").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const FileDescriptor other(open((run + "/other").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const std::string output = fmt::format("/dev/fd/{}", log.get());
  EXPECT_EQ(MessageOf(ExitStatus::kUsage, [&] { WriteTo(output, "more"); }),
            fmt::format("{}: is a file that the run {} keeps for itself, which an output does not "
                        "replace: name another file",
                        output, run));
  WriteTo(fmt::format("/dev/fd/{}", other.get()), "more");
  EXPECT_EQ(ReadFile(run + "/log.jsonl"), "{}\n");
  EXPECT_EQ(ReadFile(run + "/other"), "more");
}

TEST(OutputTarget, WritesThroughDevicesAndPipes) {
  WriteTo("/dev/null", "gone");
  struct stat status {};
  ASSERT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  const std::string folder = NewFolder();
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder + "/link");
  std::future<std::string> read = std::async(std::launch::async, [&] { return ReadFile(pipe); });
  WriteTo(folder + "/link", "through");
  EXPECT_EQ(read.get(), "through");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(OutputTarget, GoesOnWhereAnOpenFileIs) {
  const std::string path = NewPath();
  WriteFile(path, "before ");
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_APPEND));
  for (const char* folder : {"/proc/self/fd", "/dev/fd"}) {
    WriteTo(fmt::format("{}/{}", folder, file.get()), "after ");
  }
  EXPECT_EQ(ReadFile(path), "before after after ");
}

TEST(OutputTarget, SaysAtOnceWhatCannotBeWritten) {
  const std::string folder = NewFolder();
  EXPECT_EQ(ErrorOf(folder), folder + ": cannot be written: it is a folder");
  EXPECT_THAT(ErrorOf(folder + "/none/file"), HasSubstr("No such file or directory"));
  WriteFile(folder + "/file", "");
  EXPECT_THAT(ErrorOf(folder + "/file/file"), HasSubstr("Not a directory"));
  std::filesystem::create_symlink("b", folder + "/a");
  std::filesystem::create_symlink("a", folder + "/b");
  EXPECT_THAT(ErrorOf(folder + "/a"), HasSubstr("in a circle"));
  EXPECT_THAT(ErrorOf("/proc/self/fd/999"), HasSubstr("Bad file descriptor"));
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [] { OutputTarget target("", {}); }),
              HasSubstr("is no name"));
  EXPECT_THAT(ErrorOf(folder + "/" + std::string(300, 'x')), HasSubstr("File name too long"));
}

TEST(OutputTarget, WaitsForAReaderFiveSeconds) {
  const std::string pipe = NewPath();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(pipe), HasSubstr("it is a pipe that nobody reads"));
}

TEST(OutputTarget, SaysThatItsReaderLeft) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor writing(ends[1]);
  FileDescriptor reading(ends[0]);
  reading = {};
  const std::string path = fmt::format("/dev/fd/{}", writing.get());
  EXPECT_EQ(MessageOf(ExitStatus::kCheckpoint, [&] { WriteTo(path, "x"); }),
            path + ": cannot be written: Broken pipe");
  EXPECT_EQ(MessageOf(ExitStatus::kCheckpoint, [&] { WriteTo("/dev/full", "x"); }),
            "/dev/full: cannot be written: No space left on device");
}

}  // namespace
}  // namespace lockstep
