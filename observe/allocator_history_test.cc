#include "observe/allocator_history.h"

#include <gtest/gtest.h>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

// Without a GPU the snapshot is empty. What it holds of a GPU is shown by tests/gpu/gpu_memory_test.py.
TEST(AllocatorHistory, WritesAPickle) {
  const std::string path = NewPath() + "/memory/step-2-rank-0.pickle";
  {
    AllocatorHistory history;
    history.Write(path);
  }
  const std::string bytes = ReadFile(path);
  ASSERT_GT(bytes.size(), 2);
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x02");  // the second protocol
  EXPECT_EQ(bytes.back(), '.');               // its end
  EXPECT_NE(bytes.find("segments"), std::string::npos);
  EXPECT_NE(bytes.find("device_traces"), std::string::npos);
}

TEST(AllocatorHistory, SaysWhatCannotBeWritten) {
  const std::string path = NewPath();
  WriteFile(path, "a file where the folder is to be");
  AllocatorHistory history;
  history.Write(path + "/step-2-rank-0.pickle");
  std::vector<std::string> errors;
  while (errors.empty()) errors = history.TakeErrors();
  ASSERT_EQ(errors.size(), 1);
  EXPECT_NE(errors[0].find(path), std::string::npos) << errors[0];
  EXPECT_TRUE(history.TakeErrors().empty());
}

}  // namespace
}  // namespace lockstep
