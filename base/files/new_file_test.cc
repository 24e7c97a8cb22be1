#include "base/files/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr WriteErrors kErrors{ExitStatus::kData, "make room"};

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(NewFile, ReplacesTheOldOneWhenItIsFinished) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/file";
  WriteFile(path, "what was there, and was longer");
  NewFile file(path, kErrors);
  file.Write(Bytes("new "));
  file.Write(Bytes("content"));
  EXPECT_EQ(ReadFile(path), "what was there, and was longer");
  EXPECT_EQ(ReadFile(file.temporary_path()), "new content");
  file.Finish();
  EXPECT_EQ(ReadFile(path), "new content");
  EXPECT_THAT(NamesIn(folder), ElementsAre("file"));
}

TEST(NewFile, LeavesNothingWhenItIsNotFinished) {
  const std::string folder = NewFolder();
  {
    NewFile file(folder + "/file", kErrors);
    file.Write(Bytes("content"));
    EXPECT_EQ(NamesIn(folder).size(), 1U);
  }
  EXPECT_THAT(NamesIn(folder), IsEmpty());
}

TEST(NewFile, SeveralOfOnePathDoNotMeet) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/file";
  NewFile one(path, kErrors);
  NewFile other(path, kErrors);
  one.Write(Bytes("one"));
  other.Write(Bytes("other"));
  other.Finish();
  EXPECT_EQ(ReadFile(path), "other");
  one.Finish();
  EXPECT_EQ(ReadFile(path), "one");
  EXPECT_THAT(NamesIn(folder), ElementsAre("file"));
}

TEST(NewFile, NamesWhatCannotBeMade) {
  EXPECT_EQ(DataErrorOf([] { NewFile("/nowhere/x", kErrors); }),
            "/nowhere/x: cannot be made: No such file or directory");
  // The parent of this path is a plain file, so not even root can create a file there.
  const std::string path = WriteTestFile("no-folder", "text") + "/x";
  EXPECT_EQ(DataErrorOf([&] { NewFile(path, kErrors); }),
            path + ": cannot be made: Not a directory");
}

TEST(NewFile, AFullDiskLeavesTheOldFile) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/file";
  WriteFile(path, "what was there");
  {
    const LimitedFileSize limit(100);
    EXPECT_THAT(DataErrorOf([&] {
                  NewFile file(path, kErrors);
                  file.Write(Bytes(std::string(101, 'x')));
                }),
                HasSubstr("cannot be written: File too large"));
  }
  EXPECT_EQ(ReadFile(path), "what was there");
  EXPECT_THAT(NamesIn(folder), ElementsAre("file"));
}

TEST(NewFile, DoesNotReplaceAFolder) {
  const std::string folder = NewFolder();
  fs::create_directory(folder + "/file");
  EXPECT_EQ(DataErrorOf([&] { NewFile(folder + "/file", kErrors).Finish(); }),
            folder + "/file: cannot be written: Is a directory");
  EXPECT_THAT(NamesIn(folder), ElementsAre("file"));
}

}  // namespace
}  // namespace lockstep
