#include "observe/profile/profile_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ProfileFiles : public testing::Test {
 protected:
  void Write(int64_t step) {
    fs::create_directories(ProfileFolder(folder_, step));
    const RankProfile rank{
        .device = "CPU", .steps = 2, .step_ms = 1.5, .phases_ms = {{"forward", 1}}, .kernels = {}};
    WriteRunProfile(
        {.step = step, .steps = 2, .time = 7, .version = "1", .ranks = {rank}, .slower = {"this"}},
        folder_);
  }

  std::string ErrorOf(const std::string& name) {
    return MessageOf(ExitStatus::kUsage, [&] { ReadRunProfile(name); });
  }

  const std::string folder_ = NewFolder();
};

TEST_F(ProfileFiles, AreRead) {
  Write(5);
  Write(105);
  EXPECT_THAT(ProfilesOf(folder_), ElementsAre(5, 105));
  EXPECT_EQ(ReadRunProfile(folder_).step, 105);
  const RunProfile first = ReadRunProfile(folder_ + "@5");
  EXPECT_EQ(first.step, 5);
  EXPECT_EQ(first.ranks.at(0).step_ms, 1.5);
  EXPECT_THAT(first.slower, ElementsAre("this"));
}

TEST_F(ProfileFiles, SaysWhichThereAre) {
  Write(5);
  Write(105);
  EXPECT_THAT(ErrorOf(folder_ + "@6"), HasSubstr("no profile of step 6, but of steps 5, 105"));
  EXPECT_THAT(ErrorOf(folder_ + "@x"), HasSubstr("RUN@STEP"));
  EXPECT_THAT(ErrorOf("nowhere"), HasSubstr("no trace and no run folder"));
  fs::create_directories(folder_ + "/empty");
  EXPECT_THAT(ErrorOf(folder_ + "/empty"), HasSubstr("has no profile"));
}

TEST_F(ProfileFiles, SaysWhatIsNoTrace) {
  const auto error_of = [&](const std::string& name, const std::string& text) {
    WriteFile(folder_ + "/" + name, text);
    return ErrorOf(folder_ + "/" + name);
  };
  EXPECT_THAT(error_of("a.json", "{\"traceEvents\": [1,"), HasSubstr("no Chrome trace"));
  EXPECT_THAT(error_of("b.json", "{\"traceEvents\": []}"),
              HasSubstr("no kernels and no operations"));
  EXPECT_THAT(
      error_of(
          "c.json",
          R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "a", "dur": 1, "tid": 1, "name": "k", "args": {}}]})"),
      HasSubstr("c.json"));
  EXPECT_THAT(error_of("summary.json", "{}"), HasSubstr("no summary of a profile"));
}

TEST_F(ProfileFiles, ATraceIsReadCompressedAndNot) {
  nlohmann::json trace{{"traceEvents", nlohmann::json::array()}};
  for (int i = 0; i < 1000; ++i) {
    trace["traceEvents"].push_back({{"ph", "X"},
                                    {"cat", "kernel"},
                                    {"name", "sum"},
                                    {"tid", 7},
                                    {"ts", 10.0 * i},
                                    {"dur", 5.0},
                                    {"args", {{"correlation", i}}}});
  }
  for (const char* name : {"t.json", "t.json.gz"}) {
    const std::string path = folder_ + "/" + name;
    WriteFileAtomically(path, [&](const AppendBytes& append) { AppendTrace(trace, path, append); });
    const RunProfile read = ReadRunProfile(path);
    EXPECT_DOUBLE_EQ(read.ranks.at(0).kernels.at(0).ms, 5);
  }
  const std::string whole = folder_ + "/t.json.gz";
  EXPECT_LT(fs::file_size(whole), fs::file_size(folder_ + "/t.json") / 4);
  fs::resize_file(whole, fs::file_size(whole) / 2);
  EXPECT_THAT(ErrorOf(whole), HasSubstr("is cut short"));
}

}  // namespace
}  // namespace lockstep
