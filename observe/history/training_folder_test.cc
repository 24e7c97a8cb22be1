#include "observe/history/training_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "ckpt/run_lock.h"
#include "observe/history/crew_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct FolderCase {
  std::vector<const char*> files;
  FolderKind kind;
};

class FolderKinds : public testing::TestWithParam<FolderCase> {};

TEST_P(FolderKinds, EachFolderHasOne) {
  const std::string folder = NewFolder();
  for (const char* file : GetParam().files) WriteFile(folder + "/" + file, "");
  EXPECT_EQ(KindOf(folder), GetParam().kind);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, FolderKinds,
    testing::Values(FolderCase{{}, FolderKind::kOther},
                    FolderCase{{"config.pbtxt"}, FolderKind::kOther},
                    FolderCase{{"lock"}, FolderKind::kRun},
                    FolderCase{{"log.jsonl", "config.pbtxt"}, FolderKind::kRun},
                    FolderCase{{"log.jsonl", "fold-0/log.jsonl"}, FolderKind::kRun},
                    FolderCase{{"fold-0/log.jsonl"}, FolderKind::kCrossValidation},
                    FolderCase{{"fold-0/config.pbtxt"}, FolderKind::kCrossValidation},
                    FolderCase{{"fold-2/lock"}, FolderKind::kCrossValidation},
                    FolderCase{{"config.pbtxt", "fold-0/log.jsonl"}, FolderKind::kOther},
                    FolderCase{{"fold-0/other", "fold-x/log.jsonl", "fold-01/lock", "fold-/lock"},
                               FolderKind::kOther}));

TEST(TrainingFolder, NamesAllFolds) {
  const std::string planned = NewFolder();
  CrewFile crew(planned);
  crew.Write({{.name = "fold-0"}, {.name = "fold-1"}, {.name = "evaluate"}});
  EXPECT_EQ(KindOf(planned), FolderKind::kCrossValidation);
  EXPECT_THAT(FoldFolders(planned), ElementsAre(planned + "/fold-0", planned + "/fold-1"));
  EXPECT_TRUE(HasJob(planned));
  const std::string apart = NewFolder();  // the folds are jobs of their own
  WriteFile(apart + "/fold-1/config.pbtxt", "data { folds { count: 3 fold: 1 } }");
  EXPECT_THAT(FoldFolders(apart),
              ElementsAre(apart + "/fold-0", apart + "/fold-1", apart + "/fold-2"));
  EXPECT_FALSE(HasJob(apart));
  const RunLock lock(apart + "/fold-1", "job");
  EXPECT_TRUE(HasJob(apart));
  EXPECT_THAT(RunFoldersOf(apart + "/fold-1"), ElementsAre(apart + "/fold-1"));
  WriteFile(apart + "/fold-1/config.pbtxt", "of_tomorrow: 1");
  EXPECT_THAT(FoldFolders(apart), ElementsAre(apart + "/fold-0", apart + "/fold-1"));
}

TEST(TrainingFolder, IsFound) {
  const std::string folder = NewFolder();
  WriteFile(folder + "/a/lock", "");
  WriteFile(folder + "/b/log.jsonl", "");
  WriteFile(folder + "/c/fold-0/log.jsonl", "");
  WriteFile(folder + "/no run/config.pbtxt", "");
  WriteFile(folder + "/file", "");
  fs::create_directory_symlink("a", folder + "/link");
  fs::create_symlink("nowhere", folder + "/dangling");
  EXPECT_THAT(TrainingsIn(folder),
              UnorderedElementsAre(folder + "/a", folder + "/b", folder + "/c", folder + "/link"));
  EXPECT_THAT(TrainingsIn(NewFolder()), IsEmpty());
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { TrainingsIn(folder + "/nothing"); }),
              HasSubstr("nothing: cannot be read: No such file"));
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { TrainingsIn(folder + "/file"); }),
              HasSubstr("Not a directory"));
}

TEST(TrainingFolder, IsRequired) {
  const std::string folder = NewFolder();
  WriteFile(folder + "/file", "");
  WriteFile(folder + "/folds/fold-0/log.jsonl", "");
  RequireTraining(folder + "/folds");
  RequireRunFolder(folder + "/folds/fold-0");
  for (const auto require : {&RequireRunFolder, &RequireTraining}) {
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { require(folder + "/nothing"); }),
                HasSubstr("there is no such folder"));
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { require(folder + "/file"); }),
                HasSubstr("it is no run folder"));
  }
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { RequireRunFolder(folder + "/folds"); }),
              HasSubstr("name one, " + folder + "/folds/fold-0"));
}

TEST(TrainingFolder, HasRoomForFoldsUnlessItHoldsOtherThings) {
  const std::string folder = NewFolder();
  RequireRoomForFolds(folder);
  for (const char* own : {"crew.lock", "fold-0.txt", "fold-0/other", "STOP"}) {
    WriteFile(folder + "/" + own, "");
    RequireRoomForFolds(folder);
  }
  WriteFile(folder + "/cat/1.png", "");
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { RequireRoomForFolds(folder); }),
              HasSubstr("exists already and holds no folds"));
  WriteFile(folder + "/fold-0/log.jsonl", "");
  RequireRoomForFolds(folder);
  WriteFile(folder + "/lock", "");
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { RequireRoomForFolds(folder); }),
              HasSubstr("holds a run"));
}

}  // namespace
}  // namespace lockstep
