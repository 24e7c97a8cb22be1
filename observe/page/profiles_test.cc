#include "observe/page/profiles.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;

std::string SummaryOf(int64_t step, size_t kernels = 1) {
  std::string list;
  for (size_t i = 0; i < kernels; ++i) {
    list += fmt::format(R"({}{{"name":"kernel {}"}})", i == 0 ? "" : ",", i);
  }
  return fmt::format(R"({{"step":{},"ranks":[{{"rank":0,"kernels":[{}]}}]}})", step, list);
}

class ProfilesTest : public testing::Test {
 protected:
  std::string PathOf(const std::string& name) const {
    return folder_ + "/profiles/" + name + "/summary.json";
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const auto& summary : profiles_.Json()) steps.push_back(summary.at("step"));
    return steps;
  }

  std::string folder_ = NewFolder();
  Profiles profiles_{folder_};
};

TEST_F(ProfilesTest, ReadsTheFirstAndTheNewest) {
  EXPECT_FALSE(profiles_.Refresh());
  EXPECT_THAT(Steps(), ElementsAre());
  for (const int64_t step : {1000, 200, 300, 400, 500, 600, 700, 9}) {
    WriteFile(PathOf(std::to_string(step)), SummaryOf(step));
  }
  WriteFile(PathOf("other"), SummaryOf(1));
  fs::create_directories(folder_ + "/profiles/2000");  // a profile without a summary yet
  EXPECT_TRUE(profiles_.Refresh());
  EXPECT_THAT(Steps(), ElementsAre(9, 500, 600, 700, 1000));
  EXPECT_EQ(profiles_.count(), 9);
  EXPECT_FALSE(profiles_.Refresh());
  WriteFile(PathOf("2000"), SummaryOf(2000));
  EXPECT_TRUE(profiles_.Refresh());
  EXPECT_THAT(Steps(), ElementsAre(9, 500, 600, 700, 1000, 2000));
  WriteFile(PathOf("2000"), SummaryOf(2000, 50));
  EXPECT_TRUE(profiles_.Refresh());
  const auto rank = profiles_.Json().back().at("ranks").at(0);
  EXPECT_EQ(rank.at("kernels").size(), 40);
  EXPECT_EQ(rank.at("more_kernels"), 10);
}

TEST_F(ProfilesTest, SaysWhatCannotBeRead) {
  WriteFile(PathOf("1"), R"({"step":1,"ranks":[)");
  WriteFile(PathOf("2"), "[]");
  fs::create_directories(folder_ + "/profiles/3");
  ASSERT_EQ(mkfifo(PathOf("3").c_str(), 0600), 0);
  WriteFile(folder_ + "/outside.json", SummaryOf(4));
  fs::create_directories(folder_ + "/profiles/4");
  fs::create_symlink("../../outside.json", PathOf("4"));
  WriteFile(PathOf("5"), R"({"step":"x","ranks":{"rank":3}})");
  EXPECT_TRUE(profiles_.Refresh());
  std::vector<std::string> why;
  for (const auto& summary : profiles_.Json()) why.push_back(summary.value("why_not", ""));
  EXPECT_THAT(why, ElementsAre("it is no JSON object", "it is no JSON object", "it is a pipe",
                               "it is a link", ""));
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(
      profiles_.Unreadable(),
      ElementsAre(PathOf("1") + ": it is no JSON object", PathOf("2") + ": it is no JSON object",
                  PathOf("3") + ": it is a pipe", PathOf("4") + ": it is a link"));
}

}  // namespace
}  // namespace lockstep
