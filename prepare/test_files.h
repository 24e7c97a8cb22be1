// For tests: files below the test's folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep {

// A path below the test's folder that nothing has.
inline std::string NewPath() {
  static int number = 0;
  return testing::TempDir() + "/prepare-" + std::to_string(getpid()) + "-" +
         std::to_string(number++);
}

// Makes the folder, too.
inline void WriteFile(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep
