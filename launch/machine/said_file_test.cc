#include "launch/machine/said_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

void Print(const SaidFile& file, std::string_view text) {
  ASSERT_EQ(write(file.descriptor(), text.data(), text.size()), std::ssize(text));
}

TEST(SaidFile, TellsTheLastErrorOrElseTheLastLine) {
  const std::string path = WriteTestFile("said.txt", "lockstep: error: of an earlier time\n");
  const SaidFile file(path);
  EXPECT_EQ(file.LastError(), "");
  Print(file, "epoch 1\nepoch 2\n\n");
  EXPECT_EQ(file.LastError(), "epoch 2");
  Print(file, "lockstep: error: step 3: too much\nbye\n");
  EXPECT_EQ(file.LastError(), "step 3: too much");
}

TEST(SaidFile, GivesEachWarningOnce) {
  const std::string path = WriteTestFile("said.txt", "lockstep: warning: of an earlier time\n");
  SaidFile file(path);
  EXPECT_THAT(file.TakeWarnings(), testing::IsEmpty());
  Print(file, "lockstep: warning: one\nepoch 1\nlockstep: error: bad\nlockstep: warning: tw");
  EXPECT_THAT(file.TakeWarnings(), testing::ElementsAre("one"));
  EXPECT_THAT(file.TakeWarnings(), testing::IsEmpty());
  Print(file, "o\nlockstep: warning: three\n");
  EXPECT_THAT(file.TakeWarnings(), testing::ElementsAre("two", "three"));
}

TEST(SaidFile, RefusesWhatCannotBeWritten) {
  const auto message_of = [](const std::string& path) {
    return MessageOf(ExitStatus::kUsage, [&] { SaidFile file(path); });
  };
  EXPECT_THAT(message_of("/nowhere/said.txt"),
              testing::HasSubstr("cannot be written: No such file"));
  const std::string link = NewPath();
  std::filesystem::create_symlink("target.txt", link);
  EXPECT_THAT(message_of(link), testing::HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace lockstep
