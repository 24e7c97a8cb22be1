#include "prepare/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

const std::vector<std::string> kJob{"a job", "--size 3"};

bool Exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(OutputFolder, IsThereAtOnceAndWhole) {
  const std::string path = NewPath();
  OutputFolder output(path, {path}, kJob);
  FileBatch batch(output);
  for (int i = 0; i < 70; ++i) batch.Add("f" + std::to_string(i), Bytes("content"));
  EXPECT_TRUE(output.Has("f0"));
  EXPECT_FALSE(output.Has("f69")) << "not on the disk yet";
  batch.Flush();
  EXPECT_TRUE(output.Has("f69"));
  EXPECT_FALSE(Exists(path));
  output.Commit({{"", path}});
  EXPECT_EQ(ReadFile(path + "/f69"), "content");
  EXPECT_FALSE(Exists(path + ".partial"));
}

TEST(OutputFolder, RefusesToReplace) {
  const std::string path = NewPath();
  std::ofstream(path) << "mine";
  EXPECT_EQ(MessageOf(ExitStatus::kUsage, [&] { OutputFolder(path, {path}, kJob); }),
            path + ": is there already: delete it or name another");
  EXPECT_FALSE(Exists(path + ".partial"));
  // A file that appears during the run is not replaced, either.
  const std::string late = NewPath();
  OutputFolder output(late, {late}, kJob);
  std::ofstream(late) << "mine";
  EXPECT_THAT(DataErrorOf([&] { output.Commit({{"", late}}); }),
              EndsWith("cannot be written: File exists"));
  EXPECT_EQ(ReadFile(late), "mine");
}

TEST(OutputFolder, IsOneRuns) {
  const std::string path = NewPath();
  std::optional<OutputFolder> first(std::in_place, path, std::vector{path}, kJob);
  EXPECT_EQ(MessageOf(ExitStatus::kUsage, [&] { OutputFolder(path, {path}, kJob); }),
            path + ": another run is making it at this moment");
  first.reset();
  EXPECT_FALSE(OutputFolder(path, {path}, kJob).is_committed());
}

TEST(OutputFolder, RefusesAnotherJob) {
  const std::string path = NewPath();
  { const OutputFolder first(path, {path}, kJob); }
  const auto refusal = [&](const std::vector<std::string>& job) {
    return MessageOf(ExitStatus::kUsage, [&] { OutputFolder(path, {path}, job); });
  };
  const std::string begun = path + ".partial: was begun with ";
  EXPECT_EQ(refusal({"a job", "--size 4"}),
            begun + "--size 3, and now it is --size 4: delete it to begin anew");
  EXPECT_EQ(refusal({"a job"}), begun + "--size 3, and now it is nothing: delete it to begin anew");
  EXPECT_EQ(refusal({"a job", "--size 3", "b"}),
            begun + "nothing, and now it is b: delete it to begin anew");

  const std::string foreign = NewPath();
  mkdir((foreign + ".partial").c_str(), 0777);
  mkdir((foreign + ".partial/files").c_str(), 0777);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { OutputFolder(foreign, {foreign}, kJob); }),
              EndsWith(".partial: is no folder of this program's"));
}

TEST(OutputFolder, GoesOnWhereItStopped) {
  const std::string path = NewPath();
  {
    const OutputFolder output(path, {path}, kJob);
    FileBatch batch(output);
    batch.Add("done", Bytes("1"));
    batch.Flush();
    batch.Add("lost", Bytes("2"));
  }
  OutputFolder output(path, {path}, kJob);
  EXPECT_TRUE(output.Has("done"));
  EXPECT_FALSE(output.Has("lost"));
  EXPECT_FALSE(output.Has("lost.tmp"));
  WriteOutput(output, "lost", "2");
  output.Commit({{"", path}});
  EXPECT_EQ(ReadFile(path + "/done") + ReadFile(path + "/lost"), "12");
}

TEST(OutputFolder, HasFilesOnly) {
  const std::string path = NewPath();
  const OutputFolder output(path, {path}, kJob);
  output.MakeFolder("x.jpg");
  EXPECT_FALSE(output.Has("x.jpg"));
}

TEST(OutputFolder, KeepsItsPositionUntilItsCommit) {
  const std::string path = NewPath();
  {
    const OutputFolder output(path, {path}, kJob);
    EXPECT_EQ(output.ReadPosition(), "");
    output.WritePosition("1 2");
    output.WritePosition("3 4");
    std::ofstream(path + ".partial/position.tmp") << "5";
  }
  OutputFolder output(path, {path}, kJob);
  EXPECT_EQ(output.ReadPosition(), "3 4");
  output.Commit({{"", path}});
  EXPECT_FALSE(Exists(path + ".partial"));
}

TEST(OutputFolder, GoesOnFromAnotherWorkingDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string folder = NewPath();
  mkdir(folder.c_str(), 0777);
  std::filesystem::current_path(folder);
  {
    OutputFolder output("dst", {"dst"}, kJob);
    WriteOutput(output, "f", "content");
    // This file makes the commit fail at its first move.
    std::ofstream("dst") << "in the way";
    EXPECT_THAT(DataErrorOf([&] { output.Commit({{"", "dst"}}); }),
                HasSubstr("dst: cannot be written: File exists"));
    std::filesystem::remove("dst");
  }
  std::filesystem::current_path(before);
  EXPECT_TRUE(OutputFolder(folder + "/dst", {folder + "/dst"}, kJob).is_committed());
  EXPECT_EQ(ReadFile(folder + "/dst/f"), "content");
}

TEST(OutputFolder, GoesOnWithItsCommit) {
  // Simulates a process that was killed after it had moved one of two files.
  const std::string path = NewPath();
  const std::string a = path + "_a", b = path + "_b";
  const std::string name = path.substr(path.rfind('/') + 1);
  {
    const OutputFolder output(path, {a, b}, kJob);
    WriteOutput(output, "b", "B");
    std::ofstream(output.files() + "/../commit")
        << "a" << '\0' << name << "_a" << '\0' << "b" << '\0' << name << "_b" << '\0';
    std::ofstream(a) << "A";
  }
  const OutputFolder output(path, {a, b}, kJob);
  EXPECT_TRUE(output.is_committed());
  EXPECT_EQ(ReadFile(a) + ReadFile(b), "AB");
  EXPECT_FALSE(Exists(path + ".partial"));
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { OutputFolder(path, {a, b}, kJob); }),
              HasSubstr("is there already"));
}

}  // namespace
}  // namespace lockstep
