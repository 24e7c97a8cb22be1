#include "base/files/kept_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A folder with an image folder and a run, and further names of their files.
class KeptFilesTest : public testing::Test {
 protected:
  KeptFilesTest() {
    for (const char* name :
         {"images/cat", "run/checkpoints/step-1", "run/profiles", "other", "crew"}) {
      fs::create_directories(folder_ + "/" + name);
    }
    for (const char* name : {"table.csv", "images/cat/1.png", "images/notes.txt", "run/log.jsonl",
                             "run/config.pbtxt", "run/checkpoints/step-1/model.safetensors",
                             "run/predictions.csv", "other/config.pbtxt", "crew/crew.json"}) {
      WriteFile(folder_ + "/" + name, "text");
    }
    fs::create_hard_link(folder_ + "/images/cat/1.png", folder_ + "/hard.png");
    fs::create_hard_link(folder_ + "/images/notes.txt", folder_ + "/hard.txt");
    fs::create_hard_link(folder_ + "/run/log.jsonl", folder_ + "/hard.jsonl");
    fs::create_hard_link(folder_ + "/run/log.jsonl", folder_ + "/run/page.html");
    fs::create_hard_link(folder_ + "/run/checkpoints/step-1/model.safetensors",
                         folder_ + "/hard.safetensors");
    fs::create_directory_symlink("images", folder_ + "/linked_images");
    fs::create_directory_symlink("run", folder_ + "/linked_run");
    kept_.Add(folder_ + "/table.csv", "the table");
    kept_.Add(folder_ + "/images", "the images",
              [](std::string_view name) { return name.ends_with(".png"); });
    kept_.Add(folder_ + "/nothing", "nothing");
  }

  std::string WhyNot(const std::string& name) const { return kept_.WhyNot(folder_ + "/" + name); }

  std::string folder_ = NewFolder();
  KeptFiles kept_;
};

TEST_F(KeptFilesTest, KeepsInputs) {
  EXPECT_EQ(WhyNot("table.csv"), "is the table");
  for (const char* name :
       {"images/cat/1.png", "images/cat/new.png", "images/new.png", "images/new/deep/new.png",
        "linked_images/cat/1.png", "images/../images/cat/../new.png", "hard.png"}) {
    EXPECT_THAT(WhyNot(name), HasSubstr("the images")) << name;
  }
  for (const char* name : {"images/notes.txt", "images/new.csv", "hard.txt", "new.png", "nothing",
                           "images.png", "no/such/folder.png"}) {
    EXPECT_EQ(WhyNot(name), "") << name;
  }
  EXPECT_EQ(MessageOf(ExitStatus::kUsage, [&] { kept_.Require(folder_ + "/table.csv", "t.csv"); }),
            "t.csv: is the table, which an output does not replace: name another file");
}

TEST_F(KeptFilesTest, KeepsWhatRunsHave) {
  for (const char* name :
       {"run/log.jsonl", "run/config.pbtxt", "run/STOP", "run/weights.safetensors", "run/lock",
        "run/checkpoints/step-1/model.safetensors", "run/checkpoints/new", "run/checkpoints",
        "run/profiles/5/summary.json", "run/tensorboard/new", "run/other/../log.jsonl",
        "linked_run/log.jsonl", "linked_run/checkpoints/new", "run/page.html"}) {
    EXPECT_THAT(WhyNot(name), HasSubstr("keeps for itself")) << name;
  }
  EXPECT_THAT(WhyNot("crew/crew.json"), HasSubstr("keeps for itself"));
  EXPECT_THAT(WhyNot("crew/fold-0.txt"), HasSubstr("keeps for itself"));
  for (const char* name :
       {"run/predictions.csv", "run/new.html", "run/log.jsonl.html", "other/STOP",
        "other/config.pbtxt", "run", "runs/log.jsonl", "crew/held_back.csv"}) {
    EXPECT_EQ(WhyNot(name), "") << name;
  }
  // Other names of a run's files are known of runs that the command names.
  EXPECT_EQ(WhyNot("hard.jsonl"), "");
  kept_.AddRun(folder_ + "/run");
  kept_.AddRun(folder_ + "/other");
  EXPECT_THAT(WhyNot("hard.jsonl"), HasSubstr("keeps for itself"));
  EXPECT_THAT(WhyNot("hard.safetensors"), HasSubstr("keeps for itself"));
  EXPECT_THAT(WhyNot("other/config.pbtxt"), HasSubstr("keeps for itself"));
  EXPECT_EQ(WhyNot("run/predictions.csv"), "");
}

TEST_F(KeptFilesTest, KnowsOtherNamesInFoldersThatAreAddedLater) {
  EXPECT_THAT(WhyNot("hard.png"), HasSubstr("the images"));
  EXPECT_EQ(WhyNot("hard.safetensors"), "");
  kept_.Add(folder_ + "/run/checkpoints", "the checkpoints");
  EXPECT_THAT(WhyNot("hard.safetensors"), HasSubstr("the checkpoints"));
  EXPECT_THAT(WhyNot("hard.png"), HasSubstr("the images"));
}

TEST_F(KeptFilesTest, TheOtherNamesAreLookedForOnce) {
  fs::create_hard_link(folder_ + "/hard.png", folder_ + "/third.png");
  EXPECT_EQ(WhyNot("hard.txt"), "");
  fs::remove(folder_ + "/images/cat/1.png");
  EXPECT_THAT(WhyNot("hard.png"), HasSubstr("the images"));
}

}  // namespace
}  // namespace lockstep
