#include "launch/machine/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/files/file_descriptor.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

sigset_t NoSignals() {
  sigset_t none;
  sigemptyset(&none);
  return none;
}

ChildProcess::End EndOf(const std::string& script, int output = -1) {
  return ChildProcess({"sh", "-c", script}, ChildProcess::Group::kOurs, output, NoSignals()).Wait();
}

TEST(ChildProcess, EndsWithAStatusOrASignal) {
  EXPECT_EQ(EndOf("exit 0").code, 0);
  EXPECT_EQ(EndOf("exit 75").code, 75);
  EXPECT_EQ(EndOf("exit 75").signal, 0);
  EXPECT_EQ(EndOf("kill -9 $$").signal, SIGKILL);
}

TEST(ChildProcess, WritesWhereItIsToldTo) {
  const std::string path = NewPath();
  const FileDescriptor file(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(EndOf("echo said; cat", file.get()).code, 0);  // `cat` has no input and prints nothing
  EXPECT_EQ(ReadFile(path), "said\n");
}

TEST(ChildProcess, IsKilledWithItsOwner) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  {
    FileDescriptor writing(ends[1]);
    ChildProcess child({"sleep", "600"}, ChildProcess::Group::kOwn, writing.get(), NoSignals());
    EXPECT_FALSE(child.Poll());
  }
  char byte = 0;
  EXPECT_EQ(read(reading.get(), &byte, 1), 0);  // end of file: the child has ended
}

TEST(ChildProcess, GetsSignals) {
  ChildProcess child({"sleep", "600"}, ChildProcess::Group::kOwn, -1, NoSignals());
  child.Send(SIGTERM);
  EXPECT_EQ(child.Wait().signal, SIGTERM);
  EXPECT_EQ(child.Poll()->signal, SIGTERM);
  child.Send(SIGTERM);  // sends nothing, as another process may have got this process ID
}

TEST(ChildProcess, SaysWhyAProgramCannotBeStarted) {
  const auto start = [](const std::string& program) {
    return MessageOf(ExitStatus::kUsage,
                     [&] { ChildProcess({program}, ChildProcess::Group::kOurs, -1, NoSignals()); });
  };
  EXPECT_THAT(start("no-such-program"),
              HasSubstr("no-such-program cannot be started: No such file"));
  EXPECT_THAT(start("/tmp"), HasSubstr("/tmp cannot be started: Permission denied"));
}

}  // namespace
}  // namespace lockstep
