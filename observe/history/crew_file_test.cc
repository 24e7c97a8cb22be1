#include "observe/history/crew_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<JobRecord> SomeJobs() {
  return {{.name = "a", .state = JobState::kDone, .begin = 1.5e9, .end = 1.5e9 + 2, .seconds = 2},
          {.name = "b",
           .state = JobState::kFailed,
           .begin = 1.5e9,
           .end = 1.5e9 + 1,
           .seconds = 1,
           .status = ExitStatus::kPeer,
           .signal = 9,
           .line = "signal 9 ended it"},
          {.name = "c", .state = JobState::kRunning, .begin = 1.5e9},
          {.name = "d"}};
}

TEST(CrewFile, IsReadAsItWasWritten) {
  const std::string folder = NewFolder();
  CrewFile file(folder);
  file.Write(SomeJobs());
  const std::vector<JobRecord> jobs = CrewFile::Read(folder);
  ASSERT_THAT(jobs, SizeIs(4));
  EXPECT_EQ(jobs[0].name, "a");
  EXPECT_EQ(jobs[0].state, JobState::kDone);
  EXPECT_EQ(jobs[0].end, 1.5e9 + 2);
  EXPECT_EQ(jobs[0].seconds, 2);
  EXPECT_EQ(jobs[1].state, JobState::kFailed);
  EXPECT_EQ(jobs[1].status, ExitStatus::kPeer);
  EXPECT_EQ(jobs[1].signal, 9);
  EXPECT_EQ(jobs[1].line, "signal 9 ended it");
  EXPECT_EQ(jobs[2].state, JobState::kRunning);
  EXPECT_EQ(jobs[2].begin, 1.5e9);
  EXPECT_EQ(jobs[3].state, JobState::kWaiting);
  EXPECT_EQ(jobs[3].begin, 0);
}

TEST(CrewFile, OfACrewThatWasKilled) {
  const std::string folder = NewFolder();
  std::optional<CrewFile> file(folder);
  file->Write(SomeJobs());
  file.reset();  // closes the lock file, as the kernel does when a process is killed
  EXPECT_EQ(CrewFile::Read(folder)[2].state, JobState::kStopped);
  EXPECT_EQ(CrewFile::Read(folder)[0].state, JobState::kDone);
}

TEST(CrewFile, IsMissingOrDamaged) {
  const std::string folder = NewFolder();
  EXPECT_THAT(CrewFile::Read(folder), IsEmpty());
  EXPECT_THAT(CrewFile::Read(folder + "/none"), IsEmpty());
  for (const std::string text : {"", "{", "[]", R"({"jobs": [{"name": 1}]})",
                                 R"({"jobs": [{"name": "a", "state": "asleep"}]})"}) {
    WriteFile(folder + "/crew.json", text);
    EXPECT_THAT(CrewFile::Read(folder), IsEmpty()) << text;
  }
}

TEST(CrewFile, KeepsWhatIsNoText) {
  const std::string folder = NewFolder();
  CrewFile(folder).Write({{.name = "a", .state = JobState::kFailed, .end = 1, .line = "\xff?"}});
  EXPECT_THAT(CrewFile::Read(folder).front().line, HasSubstr("?"));
}

TEST(CrewFile, CannotBeWritten) {
  const std::string folder = NewFolder();
  CrewFile file(folder);
  ASSERT_EQ(mkdir((folder + "/crew.json").c_str(), 0700), 0);
  testing::internal::CaptureStderr();
  file.Write(SomeJobs());
  file.Write(SomeJobs());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("crew.json"));
  EXPECT_EQ(said.find("crew.json"), said.rfind("crew.json")) << said;
}

TEST(CrewFile, HasOneOwner) {
  const std::string folder = NewFolder();
  {
    const CrewFile file(folder);
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { CrewFile second(folder); }),
                HasSubstr(folder + ": another command runs its jobs in it"));
  }
  const CrewFile next(folder);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { CrewFile none(folder + "/none"); }),
              HasSubstr("none/crew.lock: cannot be opened"));
}

}  // namespace
}  // namespace lockstep
