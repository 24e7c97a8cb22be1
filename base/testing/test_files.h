// For tests: writes and reads files below the test's folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep {

// Returns a path below the test's folder at which no file or folder exists.
inline std::string NewPath() {
  static int number = 0;
  return testing::TempDir() + "/new-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

// Makes an empty folder and returns its path.
inline std::string NewFolder() {
  std::string path = testing::TempDir() + "/new_XXXXXX";
  if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << path;
  return std::filesystem::canonical(path).string();
}

// Writes a file, and makes its folder if necessary.
inline void WriteFile(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// Writes a file `name` in the test's folder, and returns its path.
inline std::string WriteTestFile(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  WriteFile(path, content);
  return path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// While a LimitedFileSize exists, this process's files cannot grow beyond `bytes`. Writes beyond this size fail
// (EFBIG), as writes to a full disk do (ENOSPC).
class LimitedFileSize {
 public:
  explicit LimitedFileSize(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~LimitedFileSize() { setrlimit(RLIMIT_FSIZE, &before_); }
  LimitedFileSize(const LimitedFileSize&) = delete;
  LimitedFileSize& operator=(const LimitedFileSize&) = delete;

 private:
  rlimit before_{};
};

}  // namespace lockstep
