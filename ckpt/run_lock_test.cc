#include "ckpt/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stop_token>
#include <string>
#include <thread>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A child process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& run) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) ADD_FAILURE() << "no pipe";
    process_ = fork();
    if (process_ == 0) {
      const RunLock lock(run, "a1");
      if (write(ends[1], "x", 1) == 1) pause();
      _exit(1);
    }
    close(ends[1]);
    char locked = 0;
    EXPECT_EQ(read(ends[0], &locked, 1), 1);
    close(ends[0]);
  }
  ~Holder() { Kill(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  pid_t process() const { return process_; }

  void Kill() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST(RunLock, IsHeldByOneProcess) {
  const std::string run = NewFolder();
  const Holder holder(run);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { RunLock(run, "b2"); }),
              HasSubstr(fmt::format("{}: process {} on ", run, holder.process())));
}

TEST(RunLock, IsTakenWhileOthersLook) {
  const std::string run = NewFolder();
  { const RunLock lock(run, "a1"); }
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) RunLock::IsHeld(run);
  });
  for (int i = 0; i < 50; ++i) {
    const RunLock lock(run, "a1");
    EXPECT_EQ(lock.why_not(), "");
  }
}

TEST(RunLock, GoesWithItsProcess) {
  const std::string run = NewFolder();
  Holder holder(run);
  holder.Kill();
  const RunLock lock(run, "a1");
  EXPECT_EQ(lock.why_not(), "");
}

TEST(RunLock, TellsWhetherItIsHeldAndByWhom) {
  const std::string run = NewFolder();
  EXPECT_FALSE(RunLock::IsHeld(run));
  EXPECT_FALSE(RunLock::IsOf(run, "a1"));
  {
    const RunLock lock(run, "a1");
    EXPECT_TRUE(RunLock::IsHeld(run));
    EXPECT_TRUE(RunLock::IsOf(run, "a1"));
    EXPECT_FALSE(RunLock::IsOf(run, "1"));
    EXPECT_FALSE(RunLock::IsOfAnother(run, "a1"));
    EXPECT_TRUE(RunLock::IsOfAnother(run, "1"));
  }
  EXPECT_FALSE(RunLock::IsHeld(run));
  const RunLock lock(run, "b2");
  EXPECT_TRUE(RunLock::IsOf(run, "b2"));
  EXPECT_TRUE(RunLock::IsOfAnother(run, "a1"));
  ASSERT_EQ(truncate((run + "/lock").c_str(), 0), 0);  // empty, as while a holder writes into it
  EXPECT_FALSE(RunLock::IsOfAnother(run, "a1"));
  ASSERT_EQ(unlink((run + "/lock").c_str()), 0);
  EXPECT_FALSE(RunLock::IsOfAnother(run, "a1"));
}

TEST(RunLock, NamesWhatIsMissing) {
  EXPECT_EQ(MessageOf(ExitStatus::kUsage, [] { RunLock("/nowhere", "a1"); }),
            "/nowhere/lock: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace lockstep
