#include "observe/sinks/log_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// Collects the log lines that a LogSink writes.
class Log : public testing::Test {
 protected:
  std::vector<Json> lines_;
  std::unique_ptr<EventSink> sink_ =
      NewLogSink([this](const Json& line) { lines_.push_back(line); });
};

TEST_F(Log, HasReadingsOfTheMachineEachTenSeconds) {
  constexpr double kNow = 1.8e9;
  std::vector<double> cores;
  for (const auto& [after_s, number] :
       {std::pair(0.0, 1), {1.0, 2}, {9.9, 3}, {10.1, 4}, {20.0, 5}, {20.2, 6}, {30.0, 7}}) {
    sink_->On(MachineReading{.time = kNow + after_s, .host_reading = {.cores = number}});
  }
  for (const Json& line : lines_) cores.push_back(line.at("cores"));
  EXPECT_THAT(cores, ElementsAre(1, 4, 6));
  // The clock is set back by a day.
  sink_->On(MachineReading{.time = kNow - 86400});
  EXPECT_THAT(lines_, SizeIs(4));
  // All other events are written, without a limit.
  for (int i = 0; i < 3; ++i) sink_->On(RunWarning{"w"});
  EXPECT_THAT(lines_, SizeIs(7));
}

TEST_F(Log, HasWhatMemoryIsFor) {
  MemoryReport report{.step = 2, .peak_bytes = 170, .owners = {{"parameters", 100}, {"other", 70}}};
  report.phases = {{"forward", 140}, {"backward", 170}};
  report.blocks = {{"blocks.1", 30}};
  sink_->On(report);
  Json expected = Json::parse(
      R"({"event":"memory","step":2,"device":"cpu","peak_bytes":170,
          "owners":{"parameters":100,"other":70},"phases":{"forward":140,"backward":170},
          "blocks":{"blocks.1":30}})");
  lines_[0].erase("time");
  EXPECT_EQ(lines_[0], expected);

  report.on_gpu = true;
  report.reserved_bytes = 200;
  report.device_bytes = 800;
  sink_->On(report);
  EXPECT_EQ(lines_[1].at("device"), "cuda");
  EXPECT_EQ(lines_[1].at("reserved_bytes"), 200);
  EXPECT_EQ(lines_[1].at("device_bytes"), 800);
}

TEST_F(Log, HasTheAllocationThatFailed) {
  OutOfMemory event{.step = 7, .too_many = 48, .micro_batch = 24, .accumulation = 2};
  sink_->On(event);
  EXPECT_FALSE(lines_[0].contains("fragmented"));  // the failed allocation is unknown, as on CPUs
  event.failed = FailedAllocation{.failure = {.requested_bytes = 512,
                                              .allocated_bytes = 810,
                                              .reserved_bytes = 1600,
                                              .free_bytes = 790,
                                              .usable_bytes = 790,
                                              .largest_usable_bytes = 100,
                                              .device_free_bytes = 448,
                                              .device_bytes = 2048},
                                  .rank = 1};
  sink_->On(event);
  EXPECT_EQ(lines_[1].at("rank"), 1);
  EXPECT_EQ(lines_[1].at("requested_bytes"), 512);
  EXPECT_EQ(lines_[1].at("largest_usable_bytes"), 100);
  EXPECT_EQ(lines_[1].at("fragmented"), true);
}

TEST_F(Log, HasWhatTheDriverTells) {
  sink_->On(MachineReading{.host = "node1",
                           .host_reading = {.cpu_use = 0.51239,
                                            .cores = 8,
                                            .memory_used = 5,
                                            .memory_total = 9,
                                            .process_memory = 3},
                           .gpus = {{.index = 1, .name = "old"},
                                    {.index = 2,
                                     .name = "new",
                                     .power_w = 684.26,
                                     .throttle_reasons = 0x44,
                                     .xid_errors = 79}}});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(lines_[0].erase("time"), 1);
  EXPECT_EQ(lines_[0],
            Json::parse(R"({"event": "machine", "host": "node1", "cpu_use": 0.512, "cores": 8,
                "memory_used_bytes": 5, "memory_total_bytes": 9, "process_memory_bytes": 3,
                "gpus": [{"index": 1, "name": "old"},
                         {"index": 2, "name": "new", "power_w": 684.3,
                          "throttled_by": ["power limit", "heat"], "xid_error": 79}]})"));
}

}  // namespace
}  // namespace lockstep
