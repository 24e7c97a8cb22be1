#include "observe/sinks/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

// Checks Crc32c() against values of RFC 3720, B.4, and against the usual check value, which is that of "123456789".
TEST(EventFile, Crc32cIsThatOfTheStandard) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending += byte;
  EXPECT_EQ(Crc32c(ascending), 0x46dd794e);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283);
}

TEST(EventFile, FramesRecords) {
  const std::string folder = NewFolder() + "/tensorboard";
  EventFile file(folder);
  file.Add("abc");
  EXPECT_FALSE(fs::exists(folder));
  file.Flush();
  file.Add("");
  file.Flush();
  ASSERT_EQ(FilesIn(folder).size(), 1);
  const std::string bytes = ReadFile(FilesIn(folder)[0]);
  ASSERT_EQ(bytes.size(), 16 + 3 + 16);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, 3), "abc");
  EXPECT_EQ(bytes.substr(19, 8), std::string(8, '\0'));
}

TEST(EventFile, AFurtherFileStandsBehindTheOthers) {
  const std::string folder = NewFolder() + "/tensorboard";
  const std::string from_the_future = folder + "/events.out.tfevents.9000000000.host.1";
  WriteFile(from_the_future, "");
  EventFile file(folder);
  file.Add("abc");
  file.Flush();
  const std::vector<std::string> files = FilesIn(folder);
  ASSERT_EQ(files.size(), 2);
  EXPECT_EQ(files[0], from_the_future);
  EXPECT_NE(files[1].find("events.out.tfevents.9000000001."), std::string::npos);
}

TEST(EventFile, RecordsWaitForAFolder) {
  const std::string folder = NewFolder() + "/tensorboard";
  WriteFile(folder, "a file where the folder should be");
  EventFile file(folder);
  file.Add("abc");
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { file.Flush(); }),
              testing::HasSubstr(folder));
  fs::remove(folder);
  file.Flush();
  ASSERT_EQ(FilesIn(folder).size(), 1);
  EXPECT_EQ(fs::file_size(FilesIn(folder)[0]), 19);
}

TEST(EventFile, RecordsWaitForRoom) {
  const std::string folder = NewFolder() + "/tensorboard";
  EventFile file(folder);
  file.Add("abc");
  file.Flush();
  file.Add("def");
  {
    const LimitedFileSize limit(30);  // the limit lies within the second record
    EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { file.Flush(); }),
                testing::HasSubstr("cannot be written"));
  }
  file.Flush();
  const std::string bytes = ReadFile(FilesIn(folder)[0]);
  ASSERT_EQ(bytes.size(), 38);
  EXPECT_EQ(bytes.substr(12, 3) + bytes.substr(31, 3), "abcdef");
}

TEST(EventFile, MoreThanCanWaitIsDropped) {
  const std::string folder = NewFolder() + "/tensorboard";
  EventFile file(folder);
  file.Add(std::string(EventFile::kMostUnwritten - 100, 'a'));
  file.Add(std::string(200, 'b'));
  file.Add("c");
  file.Flush();
  EXPECT_EQ(fs::file_size(FilesIn(folder)[0]), EventFile::kMostUnwritten - 100 + 16 + 17);
}

}  // namespace
}  // namespace lockstep
