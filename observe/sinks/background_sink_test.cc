#include "observe/sinks/background_sink.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// The calls that a worker has received.
struct Seen {
  std::vector<std::string> reasons;
  bool ended = false;
};

class CollectingWorker final : public EventWorker {
 public:
  explicit CollectingWorker(Seen& seen, int throws = 0) : seen_(seen), throws_(throws) {}

  void Work(const std::vector<TimedEvent>& events, bool ends) override {
    for (const TimedEvent& timed : events) {
      EXPECT_GT(timed.time, 0);
      if (const auto* warning = std::get_if<RunWarning>(&timed.event)) {
        seen_.reasons.push_back(warning->reason);
      }
    }
    if (ends) seen_.ended = true;
    if (throws_-- > 0) throw std::runtime_error("this worker throws");
  }

 private:
  Seen& seen_;
  int throws_;
};

TEST(BackgroundSink, HandsOnEventsInTheirOrder) {
  Seen seen;
  std::vector<std::string> expected;
  {
    const auto sink = NewBackgroundSink("observe.test", std::make_unique<CollectingWorker>(seen));
    for (int i = 0; i < 1000; ++i) {
      expected.push_back(std::to_string(i));
      sink->On(RunWarning{expected.back()});
    }
  }
  EXPECT_EQ(seen.reasons, expected);
  EXPECT_TRUE(seen.ended);
}

TEST(BackgroundSink, AWorkerThatThrowsIsCalledAgain) {
  Seen seen;
  testing::internal::CaptureStderr();
  {
    const auto sink =
        NewBackgroundSink("observe.test", std::make_unique<CollectingWorker>(seen, 2));
    sink->On(RunFailed{});  // On() returns when the worker has been called
    sink->On(RunFailed{});
    sink->On(RunWarning{"the last"});
  }
  EXPECT_EQ(seen.reasons, std::vector<std::string>{"the last"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: warning: this worker throws\n");
}

class HangingWorker final : public EventWorker {
 public:
  HangingWorker(std::future<void> release, std::promise<void> hangs, int64_t& count)
      : release_(std::move(release)), hangs_(std::move(hangs)), count_(count) {}

  void Work(const std::vector<TimedEvent>& events, bool) override {
    count_ += static_cast<int64_t>(events.size());
    if (!release_.valid()) return;
    hangs_.set_value();
    release_.get();
  }

 private:
  std::future<void> release_;
  std::promise<void> hangs_;
  int64_t& count_;
};

TEST(BackgroundSink, AWorkerThatHangsKeepsNobodyWaiting) {
  std::promise<void> release, hangs;
  std::future<void> is_hanging = hangs.get_future();
  int64_t count = 0;
  {
    const auto sink = NewBackgroundSink(
        "observe.test",
        std::make_unique<HangingWorker>(release.get_future(), std::move(hangs), count));
    is_hanging.get();
    for (int64_t i = 0; i < 2 * kMostWaiting; ++i) sink->On(RunWarning{});
    release.set_value();
  }
  EXPECT_EQ(count, kMostWaiting);
}

// A worker that hangs in its first call.
class StuckWorker final : public EventWorker {
 public:
  struct Ends {
    std::future<void> release;
    std::promise<void> hangs;
    std::promise<void> is_gone;
  };
  StuckWorker(Ends ends, int& calls) : ends_(std::move(ends)), calls_(calls) {}
  ~StuckWorker() override { ends_.is_gone.set_value(); }

  void Work(const std::vector<TimedEvent>&, bool) override {
    ++calls_;
    ends_.hangs.set_value();
    ends_.release.get();
  }

 private:
  Ends ends_;
  int& calls_;
};

TEST(BackgroundSink, AWorkerThatHangsIsLeftBehind) {
  std::promise<void> release, hangs, is_gone;
  std::future<void> is_hanging = hangs.get_future(), end = is_gone.get_future();
  int calls = 0;
  testing::internal::CaptureStderr();
  {
    StuckWorker::Ends ends{
        .release = release.get_future(), .hangs = std::move(hangs), .is_gone = std::move(is_gone)};
    const auto sink =
        NewBackgroundSink("observe.test", std::make_unique<StuckWorker>(std::move(ends), calls),
                          std::chrono::milliseconds(1));
    is_hanging.get();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: warning: observe.test: still waits for a file system or a command, and the "
            "process ends without it: what was not written yet is lost\n");
  release.set_value();
  end.get();
  EXPECT_EQ(calls, 1);
}

TEST(BackgroundSink, AFailureWaitsForTheWorkerToSeeIt) {
  Seen seen;
  const auto sink = NewBackgroundSink("observe.test", std::make_unique<CollectingWorker>(seen));
  sink->On(RunWarning{"before"});
  sink->On(RunFailed{});
  EXPECT_EQ(seen.reasons, std::vector<std::string>{"before"});
  EXPECT_TRUE(seen.ended);
}

}  // namespace
}  // namespace lockstep
