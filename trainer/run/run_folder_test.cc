#include "trainer/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() { config_.set_run_dir(run_); }

  std::string Log() const { return ReadFile(run_ + "/log.jsonl"); }

  std::string run_ = NewFolder() + "/run";
  config::Config config_;
};

TEST_F(RunFolderTest, LinesThatTheDiskDoesNotTakeFollowLater) {
  RunFolder folder(config_, "a1", /*fresh=*/false);
  folder.Begin(config_);
  // The limit below lets the log grow by only 15 bytes. The limit also applies to the file to which CaptureStderr()
  // redirects the warning. The first line has 4000 letters, so that the log is longer than the warning, and the warning
  // therefore stays below the limit.
  folder.Log({{"text", std::string(4000, 'a')}});
  const std::string before = Log();
  testing::internal::CaptureStderr();
  {
    // The limit allows 15 bytes after the first line. {"step":2} and its line feed have 11 bytes, so the limit lies
    // within the log's third line.
    const LimitedFileSize limit(before.size() + 15);
    for (const int step : {2, 3, 4}) folder.Log({{"step", step}});
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(run_ + "/log.jsonl: cannot be written: File too large"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  folder.Log({{"step", 5}});
  EXPECT_EQ(Log(), before + "{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n{\"step\":5}\n");
}

TEST_F(RunFolderTest, ATornLineIsCutOff) {
  {
    RunFolder folder(config_, "a1", /*fresh=*/false);
    folder.Begin(config_);
    folder.Log({{"step", 1}});
  }
  std::ofstream(run_ + "/log.jsonl", std::ios::app) << "{\"step\":";
  RunFolder folder(config_, "b2", /*fresh=*/false);
  folder.Begin(config_);
  folder.Log({{"step", 2}});
  EXPECT_EQ(Log(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(RunFolderTest, WhatAKilledJobWasWritingIsRemoved) {
  { RunFolder folder(config_, "a1", /*fresh=*/false); }
  for (const char* name : {"config.pbtxt", "weights.safetensors", "anomaly.json", "notes"}) {
    std::ofstream(run_ + "/" + name + ".tmp.123") << "half";
  }
  const RunFolder folder(config_, "b2", /*fresh=*/false);
  for (const char* name : {"config.pbtxt", "weights.safetensors", "anomaly.json"}) {
    EXPECT_FALSE(fs::exists(run_ + "/" + name + ".tmp.123")) << name;
  }
  EXPECT_TRUE(fs::exists(run_ + "/notes.tmp.123"));  // stays: a run writes no file `notes`
}

TEST_F(RunFolderTest, ARequestIsOfTheJobThatItWasMadeTo) {
  {
    RunFolder folder(config_, "a1", /*fresh=*/false);
    EXPECT_FALSE(folder.CheckpointIsRequested());
    std::ofstream file(RequestPath(run_));
    EXPECT_TRUE(folder.CheckpointIsRequested());
  }
  RunFolder folder(config_, "b2", /*fresh=*/false);
  EXPECT_FALSE(folder.CheckpointIsRequested());
  EXPECT_FALSE(fs::exists(RequestPath(run_)));
}

}  // namespace
}  // namespace lockstep
