#include "base/files/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/testing/test_files.h"

namespace {

// The function that the next successful call of rename() calls. It simulates what another process does at that moment.
std::function<void()> after_rename;

}  // namespace

// Replaces the C library's rename() in this program.
extern "C" int rename(const char* from, const char* to) noexcept {
  const int result = renameat(AT_FDCWD, from, AT_FDCWD, to);
  if (result == 0 && after_rename) std::exchange(after_rename, nullptr)();
  return result;
}

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void Write(const std::string& path, const std::string& content) {
  WriteFileAtomically(path, [&](const AppendBytes& append) {
    const auto bytes = std::as_bytes(std::span(content));
    append(bytes.first(bytes.size() / 2));
    append(bytes.subspan(bytes.size() / 2));
  });
}

size_t FilesIn(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

class AtomicFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = NewFolder();
    path_ = folder_ + "/file";
  }

  std::string folder_;
  std::string path_;
};

TEST_F(AtomicFile, WritesAndReplacesAWholeFile) {
  Write(path_, "first");
  EXPECT_EQ(ReadFile(path_), "first");
  Write(path_, "the second");
  EXPECT_EQ(ReadFile(path_), "the second");
  EXPECT_EQ(FilesIn(folder_), 1u);
}

// Checks files that are written in pieces of 16 MiB: one piece, two pieces and a byte, and 50,000,001 bytes. Their
// content is appended in spans of 1, 4, 13, 40, ... bytes.
TEST_F(AtomicFile, WritesWhatIsLarge) {
  for (const size_t bytes : {size_t{16} << 20, (size_t{32} << 20) + 1, size_t{50'000'001}}) {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 2654435761U >> 13);
    WriteFileAtomically(path_, [&](const AppendBytes& append) {
      std::span<const std::byte> rest = std::as_bytes(std::span(content));
      for (size_t length = 1; !rest.empty(); length = length * 3 + 1) {
        const size_t taken = std::min(length, rest.size());
        append(rest.first(taken));
        rest = rest.subspan(taken);
      }
    });
    EXPECT_TRUE(ReadFile(path_) == content) << bytes;
  }
}

// Checks that the old file stays if a write fails within a large file: with a limit of 20,000,000 bytes, the write of
// the second piece of 16 MiB fails.
TEST_F(AtomicFile, AFailureWithinWhatIsLargeLeavesTheOldFile) {
  Write(path_, "old");
  {
    const LimitedFileSize limit(20'000'000);
    EXPECT_THROW(Write(path_, std::string(80'000'000, 'x')), Error);
  }
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_EQ(FilesIn(folder_), 1u);
}

TEST_F(AtomicFile, AFailureLeavesTheOldFile) {
  Write(path_, "old");
  std::string message;
  try {
    const LimitedFileSize limit(4);
    Write(path_, "too long by far");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kCheckpoint);
    message = error.what();
  }
  EXPECT_NE(message.find("cannot be written: File too large"), std::string::npos) << message;
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_EQ(FilesIn(folder_), 1u);

  EXPECT_THROW(WriteFileAtomically(path_, [](const AppendBytes&) { throw DataError("no"); }),
               Error);
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_EQ(FilesIn(folder_), 1u);
}

TEST_F(AtomicFile, NamesAFolderThatIsNotThere) {
  EXPECT_THROW(Write(folder_ + "/none/file", "x"), Error);
}

TEST_F(AtomicFile, ReadersSeeTheOldFileUntilTheNewOneIsWhole) {
  Write(path_, "old");
  WriteFileAtomically(path_, [&](const AppendBytes& append) {
    append(std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(ReadFile(path_), "old");
  });
  EXPECT_EQ(ReadFile(path_), "new");
}

TEST_F(AtomicFile, WhatAKilledProcessLeavesIsRemoved) {
  Write(path_, "old");
  const pid_t writer = fork();
  if (writer == 0) {
    WriteFileAtomically(path_, [](const AppendBytes&) { raise(SIGKILL); });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::vector<std::string> of_others = {path_ + ".tmp.mine", path_ + ".tmp.",
                                              path_ + "2.tmp.3"};
  for (const std::string& path : of_others) std::ofstream(path) << "theirs";
  ASSERT_EQ(FilesIn(folder_), 2 + of_others.size());
  RemoveTornWrites(path_);
  EXPECT_EQ(FilesIn(folder_), 1 + of_others.size());
  EXPECT_EQ(ReadFile(path_), "old");
  for (const std::string& path : of_others) EXPECT_EQ(ReadFile(path), "theirs");
}

TEST_F(AtomicFile, NothingIsRemovedWhereThereIsNoFolder) {
  RemoveTornWrites(folder_ + "/none/file");
}

// Checks that the write succeeds if another process renames the folder as soon as the file has its name, as rank 0 does
// when it commits a checkpoint.
TEST_F(AtomicFile, AFolderThatIsRenamedMeanwhile) {
  const std::string folder = folder_ + "/partial", renamed = folder_ + "/whole";
  fs::create_directory(folder);
  after_rename = [&] { fs::rename(folder, renamed); };
  EXPECT_NO_THROW(Write(folder + "/part", "x"));
  EXPECT_FALSE(after_rename);
  EXPECT_EQ(ReadFile(renamed + "/part"), "x");
}

}  // namespace
}  // namespace lockstep
