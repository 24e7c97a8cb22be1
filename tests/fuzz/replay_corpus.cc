// Calls LLVMFuzzerTestOneInput() of a fuzz target with the content of each file in the folder $CORPUS, one after the
// other.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST(Corpus, IsParsedOrRefused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::getenv("CORPUS"))) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  EXPECT_GT(files, 0);
}
