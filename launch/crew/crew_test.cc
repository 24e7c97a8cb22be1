#include "launch/crew/crew.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <map>
#include <string>

#include "base/files/file_descriptor.h"
#include "base/testing/test_files.h"
#include "ckpt/checkpoint.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A named pipe. A job writes to the pipe to tell the test that it has begun, or waits until the test writes to the
// pipe.
class Gate {
 public:
  Gate() : path_(NewPath()) { EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0); }

  const std::string& path() const { return path_; }

  // Waits until a job writes a line to the pipe.
  void AwaitJob() const {
    const FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    char byte = 0;
    EXPECT_EQ(read(file.get(), &byte, 1), 1);
  }

  // Writes a line to the pipe, so that a job that reads from the pipe goes on.
  void Open() const {
    const FileDescriptor file(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(write(file.get(), "\n", 1), 1);
  }

 private:
  std::string path_;
};

// Makes shell scripts for a job that runs until it gets SIGTERM. The job then prints "saved" and exits with `status`.
class LongJob {
 public:
  std::string script(const std::string& status = "75") const {
    return "trap 'echo saved; exit " + status + "' TERM; echo > " + begun_.path() + "; " + wait_;
  }
  // Returns a script that ignores SIGTERM.
  std::string deaf_script() const { return "trap '' TERM; echo > " + begun_.path() + "; " + wait_; }
  void AwaitBegin() const { begun_.AwaitJob(); }

 private:
  const Gate begun_;
  // A single command that waits for ever would begin to wait even if the signal came just before it.
  const std::string wait_ = "while :; do sleep 0.05; done";
};

class CrewTest : public testing::Test {
 protected:
  CrewJob Job(const std::string& name, const std::string& script) const {
    return {
        .name = name,
        .command = [script](int64_t) -> std::vector<std::string> { return {"sh", "-c", script}; },
        .output = folder_ + "/" + name + ".txt",
        .said = folder_ + "/" + name + ".said"};
  }

  // Waits until the crew has nothing to do. Returns the numbers of the jobs in the order in which the jobs ended.
  static std::vector<int64_t> WaitForAll(Crew& crew) {
    std::vector<int64_t> all;
    while (crew.IsBusy()) {
      for (const int64_t number : crew.Wait()) all.push_back(number);
    }
    return all;
  }

  std::vector<std::string> StatesInFile() const {
    std::vector<std::string> states;
    const std::map<JobState, std::string> names{{JobState::kWaiting, "waiting"},
                                                {JobState::kRunning, "running"},
                                                {JobState::kDone, "done"},
                                                {JobState::kStopped, "stopped"},
                                                {JobState::kFailed, "failed"}};
    for (const JobRecord& job : CrewFile::Read(folder_)) {
      states.push_back(job.name + " " + names.at(job.state));
    }
    return states;
  }

  // Checks that a crew stops as it does after the signal `number` if `ask` is called while two of its three jobs run.
  void ExpectStopped(int number, const std::function<void()>& ask) const {
    const LongJob a;
    const LongJob b;
    Crew crew({.folder = folder_, .places = 2});
    crew.Add(Job("a", a.script()));
    crew.Add(Job("b", b.script("130")));
    crew.Add(Job("later", "exit 0"));
    crew.Wait();
    a.AwaitBegin();
    b.AwaitBegin();
    ask();
    WaitForAll(crew);
    EXPECT_EQ(crew.signal(), number);
    EXPECT_EQ(crew.stopped(), number == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped);
    EXPECT_FALSE(crew.failed());
    EXPECT_THAT(StatesInFile(), ElementsAre("a stopped", "b stopped", "later waiting"));
  }

  const std::string folder_ = NewFolder();
};

TEST_F(CrewTest, TellsOfEachEnd) {
  Crew crew({.folder = folder_});
  crew.Add(Job("done", "echo printed; echo said >&2"));
  crew.Add(Job("fails", "echo 'lockstep: error: the disk is full' >&2; echo more >&2; exit 4"));
  crew.Add(Job("silent", "exit 70"));
  crew.Add(Job("dies", "kill -9 $$"));
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(crew.job(0).state, JobState::kDone);
  EXPECT_EQ(ReadFile(folder_ + "/done.txt"), "printed\n");
  EXPECT_EQ(ReadFile(folder_ + "/done.said"), "said\n");
  EXPECT_EQ(crew.job(1).state, JobState::kFailed);
  EXPECT_EQ(crew.job(1).status, ExitStatus::kCheckpoint);
  EXPECT_EQ(crew.job(1).line, "the disk is full");
  EXPECT_EQ(crew.job(2).line, "it ended with status 70");
  EXPECT_EQ(crew.job(3).status, ExitStatus::kPeer);
  EXPECT_EQ(crew.job(3).signal, SIGKILL);
  EXPECT_EQ(crew.job(3).line, "signal 9 ended it");
  EXPECT_EQ(crew.failed(), 1);
  EXPECT_FALSE(crew.stopped());
  EXPECT_THAT(StatesInFile(),
              ElementsAre("done done", "fails failed", "silent failed", "dies failed"));
  EXPECT_GT(crew.job(0).begin, 0);
  EXPECT_GE(crew.job(0).end, crew.job(0).begin);
}

TEST_F(CrewTest, FillsItsPlaces) {
  const Gate first;
  const Gate second;
  std::vector<int64_t> places;
  Crew crew({.folder = folder_, .places = 2});
  const auto add = [&](const std::string& name, const std::string& script) {
    CrewJob job = Job(name, script);
    job.command = [&places, script](int64_t place) -> std::vector<std::string> {
      places.push_back(place);
      return {"sh", "-c", script};
    };
    crew.Add(std::move(job));
  };
  add("a", "read -r nothing < " + first.path());
  add("b", "read -r nothing < " + second.path());
  add("c", "exit 0");
  EXPECT_THAT(crew.Wait(), IsEmpty());
  EXPECT_THAT(crew.running(), ElementsAre(0, 1));
  EXPECT_THAT(StatesInFile(), ElementsAre("a running", "b running", "c waiting"));
  second.Open();
  while (crew.job(2).state != JobState::kDone) crew.Wait();
  EXPECT_THAT(crew.running(), ElementsAre(0));
  first.Open();
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0));
  EXPECT_THAT(places, ElementsAre(0, 1, 1));
  // A job may be added after the others have ended.
  add("d", "exit 0");
  EXPECT_TRUE(crew.IsBusy());
  EXPECT_THAT(WaitForAll(crew), ElementsAre(3));
}

TEST_F(CrewTest, AJobThatCannotBeStarted) {
  Crew crew({.folder = folder_});
  CrewJob none = Job("none", "");
  none.command = [](int64_t) -> std::vector<std::string> { return {"no-such-program"}; };
  crew.Add(none);
  CrewJob nowhere = Job("nowhere", "exit 0");
  nowhere.said = folder_ + "/no/such/file";
  crew.Add(nowhere);
  crew.Add(Job("other", "exit 0"));
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0, 1, 2));
  EXPECT_EQ(crew.job(0).state, JobState::kFailed);
  EXPECT_EQ(crew.job(0).status, ExitStatus::kUsage);
  EXPECT_EQ(crew.job(0).begin, 0);
  EXPECT_THAT(crew.job(0).line, HasSubstr("no-such-program cannot be started: "));
  EXPECT_THAT(crew.job(1).line, HasSubstr("file: cannot be written: "));
  EXPECT_EQ(crew.job(2).state, JobState::kDone);
}

TEST_F(CrewTest, AFailureStopsTheOthers) {
  const LongJob other;
  const Gate gate;
  Crew crew({.folder = folder_, .places = 2, .stops_at_failure = true});
  crew.Add(Job("other", other.script()));
  crew.Add(Job("fails", "read -r nothing < " + gate.path() + "; echo why >&2; exit 3"));
  crew.Add(Job("later", "exit 0"));
  crew.Wait();
  other.AwaitBegin();
  gate.Open();
  EXPECT_THAT(WaitForAll(crew), ElementsAre(1, 0));
  EXPECT_EQ(crew.failed(), 1);
  EXPECT_EQ(crew.job(1).line, "why");
  EXPECT_EQ(crew.signal(), 0);
  EXPECT_EQ(ReadFile(folder_ + "/other.txt"), "saved\n");
  EXPECT_THAT(StatesInFile(), ElementsAre("other stopped", "fails failed", "later waiting"));
}

TEST_F(CrewTest, AJobThatStopsByItself) {
  Crew crew({.folder = folder_});
  crew.Add(Job("stops", "exit 75"));
  crew.Add(Job("later", "exit 0"));
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0));
  EXPECT_EQ(crew.stopped(), ExitStatus::kStopped);
  EXPECT_EQ(crew.signal(), 0);
  EXPECT_THAT(StatesInFile(), ElementsAre("stops stopped", "later waiting"));
}

TEST_F(CrewTest, ASignalStopsAll) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR2}) {
    ExpectStopped(number, [&] { kill(getpid(), number); });
  }
  EXPECT_EQ(ReadFile(folder_ + "/a.txt"), "saved\nsaved\nsaved\nsaved\nsaved\n");
}

TEST_F(CrewTest, AStopFileStopsAll) {
  ExpectStopped(SIGINT, [&] { WriteFile(StopPath(folder_), ""); });
  EXPECT_NE(access(StopPath(folder_).c_str(), F_OK), 0);
  Crew next({.folder = folder_});
  next.Add(Job("again", "exit 0"));
  WaitForAll(next);
  EXPECT_FALSE(next.stopped());
}

TEST_F(CrewTest, ASignalThatCameBefore) {
  Crew::HoldSignals();
  kill(getpid(), SIGTERM);
  Crew crew({.folder = folder_});
  crew.Add(Job("never", "exit 0"));
  EXPECT_THAT(WaitForAll(crew), IsEmpty());
  EXPECT_EQ(crew.stopped(), ExitStatus::kStopped);
  EXPECT_EQ(crew.job(0).state, JobState::kWaiting);
}

TEST_F(CrewTest, ASecondSignalKills) {
  const LongJob deaf;
  Crew crew({.folder = folder_});
  crew.Add(Job("deaf", deaf.deaf_script()));
  crew.Wait();
  deaf.AwaitBegin();
  kill(getpid(), SIGINT);
  while (crew.signal() == 0) crew.Wait();
  EXPECT_THAT(crew.running(), ElementsAre(0));
  kill(getpid(), SIGTERM);
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0));
  EXPECT_EQ(crew.stopped(), ExitStatus::kInterrupted);
  EXPECT_EQ(crew.job(0).signal, SIGKILL);
  EXPECT_EQ(crew.job(0).state, JobState::kStopped);
}

TEST_F(CrewTest, PatienceEnds) {
  const LongJob deaf;
  Crew crew({.folder = folder_, .patience_s = 0});
  crew.Add(Job("deaf", deaf.deaf_script()));
  crew.Wait();
  deaf.AwaitBegin();
  kill(getpid(), SIGTERM);
  EXPECT_THAT(WaitForAll(crew), ElementsAre(0));
  EXPECT_EQ(crew.job(0).signal, SIGKILL);
}

TEST_F(CrewTest, EndsItsJobs) {
  const LongJob job;
  {
    Crew crew({.folder = folder_});
    crew.Add(Job("a", job.script()));
    crew.Add(Job("b", "exit 0"));
    crew.Wait();
    job.AwaitBegin();
  }
  EXPECT_EQ(ReadFile(folder_ + "/a.txt"), "");
  EXPECT_THAT(StatesInFile(), ElementsAre("a stopped", "b waiting"));
}

TEST_F(CrewTest, StartsNothingThatIsDone) {
  for (const bool is_done : {false, true}) {
    Crew crew({.folder = folder_});
    CrewJob job = Job("a", "echo again");
    job.is_done = [is_done] { return is_done; };
    crew.Add(job);
    EXPECT_THAT(WaitForAll(crew), ElementsAre(0));
    EXPECT_EQ(crew.job(0).state, JobState::kDone);
    EXPECT_GT(crew.job(0).end, 0);  // in the second round `end` is that of the first crew's record
  }
  EXPECT_EQ(ReadFile(folder_ + "/a.txt"), "again\n");
}

}  // namespace
}  // namespace lockstep
