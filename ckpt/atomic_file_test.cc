#include "ckpt/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/test_files.h"

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

// More than is written at once, in pieces of any length.
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

// The second of several pieces.
TEST_F(AtomicFile, AFailureWithinWhatIsLargeLeavesTheOldFile) {
  Write(path_, "old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 20'000'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(Write(path_, std::string(80'000'000, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ReadFile(path_), "old");
  EXPECT_EQ(FilesIn(folder_), 1u);
}

TEST_F(AtomicFile, AFailureLeavesTheOldFile) {
  Write(path_, "old");
  // The disk is full after four bytes, as far as this process can tell.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{.rlim_cur = 4, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string message;
  try {
    Write(path_, "too long by far");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kCheckpoint);
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
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

}  // namespace
}  // namespace lockstep
