#include "observe/page/page_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "observe/history/crew_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

using testing::ElementsAre;
using testing::HasSubstr;

std::string StepLine(int64_t step, const std::string& loss, double time = 1000) {
  return fmt::format(
      R"({{"event":"step","time":{},"step":{},"epoch":1,"loss":{},"lr":0.5,"samples_per_s":10.0}})"
      "\n",
      time + static_cast<double>(step), step, loss);
}

// A fixture that makes a run folder with a given log, and returns the data that the page shows of this run.
class PageDataTest : public testing::Test {
 protected:
  static Json OfLog(const std::string& log) {
    const std::string run_dir = NewFolder();
    WriteFile(run_dir + "/log.jsonl", log);
    return PageData({run_dir}, false).All().at("runs").at(0);
  }
};

TEST_F(PageDataTest, ReducesLongCurves) {
  std::string log = R"({"event":"start","time":1000,"steps":9000})"
                    "\n";
  for (int64_t step = 1; step <= 9000; ++step) {
    log += StepLine(step, step == 4321 ? "77.5" : step == 5000 ? "null" : "1.25");
  }
  const Json run = OfLog(log);
  const Json& curves = run.at("curves");
  const size_t columns = curves.at("step").size();
  EXPECT_LE(columns, kMostColumns);
  EXPECT_GE(columns, kMostColumns / 2);
  const Json& loss = curves.at("figures").at("loss");
  for (const char* name : {"mean", "least", "greatest"}) EXPECT_EQ(loss.at(name).size(), columns);
  EXPECT_EQ(std::ranges::max(loss.at("greatest")), 77.5);
  EXPECT_EQ(curves.at("step").back(), 9000);
  // The last step has the Unix time 10000, and the job began at 1000.
  EXPECT_EQ(curves.at("time").back(), 9000);
  EXPECT_FALSE(curves.at("figures").contains("grad_norm"));
  EXPECT_EQ(run.at("not_finite").at("lines"), 1);
  EXPECT_EQ(run.at("not_finite").at("step"), 5000);
  EXPECT_EQ(run.at("steps_logged"), 9000);
}

TEST_F(PageDataTest, ShowsShortCurvesAsTheyAre) {
  const Json run =
      OfLog(StepLine(3, "0.123456789") + StepLine(5, "1e-9") + StepLine(9, "123456789.0"));
  const Json& curves = run.at("curves");
  EXPECT_THAT(curves.at("step"), ElementsAre(3, 5, 9));
  EXPECT_THAT(curves.at("figures").at("loss").at("mean"), ElementsAre(0.123457, 1e-9, 123457000));
  EXPECT_FALSE(curves.at("figures").at("loss").contains("least"));
}

TEST_F(PageDataTest, SendsWhatHasChanged) {
  const std::string first = NewFolder();
  const std::string second = NewFolder();
  for (const std::string& folder : {first, second}) {
    WriteFile(folder + "/log.jsonl", StepLine(1, "2.0"));
  }
  PageData page({first, second}, true);
  const Json all = page.All();
  EXPECT_EQ(all.at("runs").size(), 2);
  const int64_t version = all.at("version");
  EXPECT_THAT(page.Since(version).at("runs"), ElementsAre());
  std::ofstream(second + "/log.jsonl", std::ios::app) << StepLine(2, "1.5");
  const Json news = page.Since(version);
  ASSERT_EQ(news.at("runs").size(), 1);
  EXPECT_EQ(news.at("runs")[0].at("id"), 1);
  EXPECT_THAT(news.at("runs")[0].at("curves").at("step"), ElementsAre(1, 2));
  EXPECT_EQ(news.at("runs")[0].at("step"), 2);
  for (const char* same : {"name", "config", "evaluations", "readings"}) {
    EXPECT_FALSE(news.at("runs")[0].contains(same)) << same;
  }
  EXPECT_GT(news.at("version").get<int64_t>(), version);
  // Another browser, which still has the old version, gets the change, too.
  EXPECT_EQ(page.Since(version).at("runs").size(), 1);
  EXPECT_EQ(page.Since(news.at("version")).at("runs").size(), 0);
  EXPECT_TRUE(page.All().at("runs")[1].contains("name"));
}

TEST_F(PageDataTest, GivesAPartOfTheCurves) {
  const std::string run_dir = NewFolder();
  std::string log;
  for (int64_t step = 1; step <= 5000; ++step) log += StepLine(step, "1.0", 2000);
  WriteFile(run_dir + "/log.jsonl", log);
  const PageData page({run_dir}, true);
  const auto steps = [&](CurveAxis axis, double from, double to) {
    const Json part = page.CurvesWithin(axis, from, to);
    EXPECT_EQ(part.at(0).at("id"), 0);
    return part.at(0).at("curves").at("step").get<std::vector<int64_t>>();
  };
  EXPECT_THAT(steps(CurveAxis::kStep, 99.5, 102), ElementsAre(100, 101, 102));
  // The time counts from the line of step 1, so step 10 has the time 9.
  EXPECT_THAT(steps(CurveAxis::kTime, 9, 11), ElementsAre(10, 11, 12));
  EXPECT_THAT(steps(CurveAxis::kStep, 6000, 7000), ElementsAre());
  EXPECT_THAT(steps(CurveAxis::kStep, 7, 5), ElementsAre());
  EXPECT_THAT(steps(CurveAxis::kStep, std::nan(""), std::nan("")), ElementsAre());
  EXPECT_LE(steps(CurveAxis::kStep, -1e300, 1e300).size(), kMostColumns);
}

// Checks the shares of the time between two `seconds` lines, even if a new job has begun between the lines. The seconds
// in a `seconds` line count from the beginning of the line's job.
TEST_F(PageDataTest, CountsTheSharesOfTheTimeBetweenLines) {
  const auto seconds = [](double time, double wall, double ideal, double reading,
                          const std::string& verdict) {
    return fmt::format(
        R"({{"event":"seconds","time":{},"step":5,"wall_s":{},"ideal_s":{},"lost_s":{{"reading":{},)"
        R"("other":0.0}},"verdict":"{}","remedy":"r"}})"
        "\n",
        time, wall, ideal, reading, verdict);
  };
  const std::string start = R"({"event":"start","time":)";
  const Json run = OfLog(start + "100}\n" + seconds(105, 4, 4, 0, "") +
                         seconds(110, 8, 6, 2, "80 % of it; lost 20 % to reading") +
                         seconds(115, 12, 8, 4, "75 % of it; lost 25 % to reading") + start +
                         "1000}\n" + seconds(1005, 5, 1, 4, "20 % of it"));
  const Json& shares = run.at("shares");
  EXPECT_THAT(shares.at("time"), ElementsAre(5, 10, 15, 20));
  EXPECT_THAT(shares.at("ideal"), ElementsAre(1, 0.5, 0.5, 0.2));
  EXPECT_THAT(shares.at("lost").at("reading"), ElementsAre(0, 0.5, 0.5, 0.8));
  const Json& verdicts = run.at("verdicts");
  ASSERT_EQ(verdicts.size(), 3);
  EXPECT_EQ(verdicts[1].at("verdict"), "75 % of it; lost 25 % to reading");
  EXPECT_EQ(verdicts[1].at("time"), 10);
  EXPECT_EQ(verdicts[2].at("time"), 20);
}

TEST_F(PageDataTest, ShowsReadingsOfEachGpu) {
  const Json run = OfLog(
      R"({"event":"start","time":100})"
      "\n"
      R"({"event":"machine","time":110,"host":"a","cpu_use":0.5,"memory_used_bytes":7,"gpus":[)"
      R"({"index":1,"use":0.25,"power_w":300.5},{"index":0,"use":1}]})"
      "\n"
      R"({"event":"machine","time":120,"cpu_use":0.75,"gpus":[{"index":1,"use":0.5},7]})"
      "\n");
  const Json& readings = run.at("readings");
  EXPECT_THAT(readings.at("time"), ElementsAre(10, 20));
  EXPECT_THAT(readings.at("figures").at("cpu_use").at("mean"), ElementsAre(0.5, 0.75));
  EXPECT_THAT(readings.at("figures").at("memory_used_bytes").at("mean"), ElementsAre(7, nullptr));
  ASSERT_EQ(readings.at("gpus").size(), 2);
  EXPECT_EQ(readings.at("gpus")[0].at("index"), 0);
  const Json& second = readings.at("gpus")[1].at("figures");
  EXPECT_THAT(second.at("use").at("mean"), ElementsAre(0.25, 0.5));
  EXPECT_THAT(second.at("power_w").at("mean"), ElementsAre(300.5, nullptr));
  EXPECT_FALSE(second.contains("temperature_c"));
  EXPECT_EQ(run.at("machine").at("cpu_use"), 0.75);
}

TEST_F(PageDataTest, ShowsWhatThereIs) {
  const std::string nothing = NewFolder();
  WriteFile(nothing + "/lock", "");
  const std::string pipe = NewFolder();
  ASSERT_EQ(mkfifo((pipe + "/log.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((pipe + "/config.pbtxt").c_str(), 0600), 0);
  const std::string damaged = NewFolder();
  WriteFile(damaged + "/log.jsonl",
            "\xff\xfe\n[1]\n" + StepLine(1, "1.0") + R"({"event":"step","step":2,"loss":)");
  WriteFile(damaged + "/config.pbtxt", "no_such_field: 1");
  PageData data({nothing, pipe, damaged}, false);
  const Json all = data.All();
  EXPECT_TRUE(all.at("differences").is_null());
  const Json& runs = all.at("runs");
  EXPECT_EQ(runs[0].at("state"), "no log");
  EXPECT_EQ(runs[0].at("why_no_log"), "No such file or directory");
  EXPECT_EQ(runs[1].at("why_no_log"), "it is a pipe");
  EXPECT_EQ(runs[1].at("why_no_config"), "it is a pipe");
  EXPECT_EQ(runs[2].at("state"), "killed");
  EXPECT_EQ(runs[2].at("bad_lines"), 2);
  EXPECT_EQ(runs[2].at("step"), 1);
  EXPECT_THAT(runs[2].at("why_no_config").get<std::string>(), HasSubstr("no_such_field"));
  for (const Json& run : runs) {
    EXPECT_TRUE(run.at("ranks").is_null());
    EXPECT_THAT(run.at("profiles"), ElementsAre());
    EXPECT_TRUE(run.at("seconds").is_null());
  }
  EXPECT_THAT(data.Unreadable(),
              ElementsAre(nothing + "/log.jsonl: No such file or directory",
                          nothing + "/config.pbtxt: No such file or directory",
                          pipe + "/log.jsonl: it is a pipe", pipe + "/config.pbtxt: it is a pipe",
                          HasSubstr(damaged + "/config.pbtxt: ")));
}

TEST_F(PageDataTest, TellsOfAFoldThatWaits) {
  const std::string folder = NewFolder();
  CrewFile crew(folder);
  std::vector<JobRecord> jobs{{.name = "fold-0", .state = JobState::kRunning, .begin = 1000},
                              {.name = "fold-1"}};
  crew.Write(jobs);
  fs::create_directory(folder + "/fold-0");
  WriteFile(folder + "/fold-0/log.jsonl", StepLine(1, "1.0"));
  PageData page({folder + "/fold-0", folder + "/fold-1", folder + "/fold-2/"}, false);
  const Json all = page.All();
  EXPECT_EQ(all.at("runs")[0].at("state"), "killed");
  EXPECT_EQ(all.at("runs")[1].at("state"), "waiting");
  EXPECT_EQ(all.at("runs")[1].at("why_no_log"), "");
  EXPECT_EQ(all.at("runs")[2].at("state"), "no log");
  EXPECT_NE(all.at("runs")[2].at("why_no_log"), "");
  jobs[1].state = JobState::kRunning;
  crew.Write(jobs);
  EXPECT_EQ(page.Since(0).at("runs")[0].at("state"), "starting");
}

TEST_F(PageDataTest, ComparesConfigs) {
  std::vector<std::string> run_dirs;
  for (const char* rate : {"0.1", "0.2"}) {
    run_dirs.push_back(NewFolder());
    WriteFile(run_dirs.back() + "/log.jsonl", StepLine(1, "1.0"));
    WriteFile(run_dirs.back() + "/config.pbtxt",
              fmt::format("global_batch: 64 optimizer {{ lr: {} }}", rate));
  }
  const Json all = PageData(run_dirs, false).All();
  ASSERT_EQ(all.at("differences").size(), 1);
  EXPECT_EQ(all.at("differences")[0].at("field"), "optimizer.lr");
  EXPECT_THAT(all.at("differences")[0].at("values"), ElementsAre("0.1", "0.2"));
  EXPECT_THAT(all.at("runs")[0].at("config"), testing::Contains("optimizer.lr: 0.1"));
}

TEST(RunFoldersFor, TakesRunsAndFoldersOfRuns) {
  const std::string folder = NewFolder();
  for (const char* name : {"b", "a", "c"}) WriteFile(folder + "/" + name + "/log.jsonl", "");
  WriteFile(folder + "/other/file", "");
  EXPECT_THAT(RunFoldersFor({folder + "/c", folder}),
              ElementsAre(folder + "/c", folder + "/a", folder + "/b", folder + "/c"));
  const std::string cross = folder + "/a-cross";
  for (const int fold : {0, 2, 10}) WriteFile(fmt::format("{}/fold-{}/lock", cross, fold), "");
  std::vector<std::string> folds;
  for (int fold = 0; fold <= 10; ++fold) folds.push_back(fmt::format("{}/fold-{}", cross, fold));
  EXPECT_EQ(RunFoldersFor({cross}), folds);
  folds.insert(folds.begin(), folder + "/a");
  folds.insert(folds.end(), {folder + "/b", folder + "/c"});
  EXPECT_EQ(RunFoldersFor({folder}), folds);
}

TEST(RunFoldersFor, NamesWhatIsNoRun) {
  const std::string folder = NewFolder();
  const auto message = [&](const std::string& path) {
    return MessageOf(ExitStatus::kUsage, [&] { RunFoldersFor({path}); });
  };
  EXPECT_EQ(message(folder), folder + ": it is no run folder, and there are no run folders in it");
  EXPECT_EQ(message(folder + "/none"), folder + "/none: there is no such folder");
  WriteFile(folder + "/file", "");
  EXPECT_THAT(message(folder + "/file"), HasSubstr("it is no run folder"));
  for (int i = 0; i <= kMostRuns; ++i) {
    WriteFile(fmt::format("{}/run-{}/log.jsonl", folder, i), "");
  }
  EXPECT_EQ(message(folder), "101 runs: a page shows at most 100: name fewer");
}

}  // namespace
}  // namespace lockstep
