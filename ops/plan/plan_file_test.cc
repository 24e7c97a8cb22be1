// Tests that plans are kept and read again.

#include "ops/plan/plan_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

constexpr char kDevice[] = "NVIDIA H200, 132 multiprocessors, cuBLASLt 130101";

// Return a key and a plan that are different for each `number`, and about as long as those of a matrix product.
std::string Key(int number) {
  return fmt::format("{}x2304x768 a=rows/768 b=columns/2304 to=4096 bf16>bf16 adds", 8 * number);
}
std::string Plan(int number) { return fmt::format("{:0128x} 33554432 80.125 90.250", number); }

PlanFile FileIn(const std::string& folder, const std::string& device = kDevice) {
  return PlanFile(folder, "products", device);
}

std::optional<std::string> Find(const PlanFile& file, const std::string& key) {
  const PlanTexts plans = file.Read();
  const auto it = plans.find(key);
  return it == plans.end() ? std::nullopt : std::optional(it->second);
}

bool AnyIsUsable(const std::string&) { return true; }

std::string Keep(const PlanFile& file, const std::string& key, const std::string& plan) {
  return file.Keep(key, plan, AnyIsUsable).at(key);
}

TEST(PlanLine, ComesBack) {
  for (int i = 1; i <= 30; ++i) {
    const std::string line = PlanLine(kDevice, Key(i), Plan(i));
    EXPECT_EQ(ParsePlanLine(kDevice, line), std::pair(Key(i), Plan(i))) << line;
  }
  EXPECT_EQ(ParsePlanLine(kDevice, PlanLine(kDevice, "", "")),
            std::pair(std::string(), std::string()));
}

TEST(PlanLine, AnyOtherCharacterIsSeen) {
  const std::string line = PlanLine(kDevice, Key(1), Plan(1));
  for (size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] ^= 1;
    EXPECT_FALSE(ParsePlanLine(kDevice, damaged)) << damaged;
    EXPECT_FALSE(ParsePlanLine(kDevice, line.substr(0, i))) << i;
  }
  EXPECT_FALSE(ParsePlanLine(kDevice, line + " "));
  EXPECT_FALSE(ParsePlanLine(std::string(kDevice) + "2", line));
}

TEST(PlanFile, GivesWhatWasKept) {
  const std::string folder = NewPath() + "/a/b";
  const PlanFile file = FileIn(folder);
  EXPECT_FALSE(Find(file, Key(1)));
  EXPECT_EQ(Keep(file, Key(1), Plan(1)), Plan(1));
  EXPECT_EQ(Keep(file, Key(2), Plan(2)), Plan(2));
  const PlanFile same = FileIn(folder);
  EXPECT_EQ(Find(same, Key(1)), Plan(1));
  EXPECT_EQ(Find(same, Key(2)), Plan(2));
  EXPECT_FALSE(Find(same, Key(3)));
}

TEST(PlanFile, WhoComesSecondTakesTheFirstsPlan) {
  const std::string folder = NewFolder();
  const PlanFile one = FileIn(folder);
  const PlanFile other = FileIn(folder);
  Keep(one, Key(1), Plan(1));
  EXPECT_EQ(Keep(other, Key(1), Plan(2)), Plan(1));
  EXPECT_EQ(Find(one, Key(1)), Plan(1));
}

TEST(PlanFile, WhoKeepsAPlanLearnsOfTheOthers) {
  const std::string folder = NewFolder();
  const PlanFile one = FileIn(folder);
  const PlanFile other = FileIn(folder);
  Keep(one, Key(1), Plan(1));
  const PlanTexts both{{Key(1), Plan(1)}, {Key(2), Plan(2)}};
  EXPECT_EQ(other.Keep(Key(2), Plan(2), AnyIsUsable), both);
  EXPECT_EQ(one.Keep(Key(2), Plan(3), AnyIsUsable), both);
}

TEST(PlanFile, ReplacesWhatIsOfNoUse) {
  const PlanFile file = FileIn(NewFolder());
  Keep(file, Key(1), Plan(1));
  const auto is_usable = [](const std::string& plan) { return plan != Plan(1); };
  EXPECT_EQ(file.Keep(Key(1), Plan(2), is_usable).at(Key(1)), Plan(2));
  EXPECT_EQ(Find(file, Key(1)), Plan(2));
}

TEST(PlanFile, DropsBadLines) {
  const PlanFile file = FileIn(NewFolder());
  std::string damaged = PlanLine(kDevice, Key(2), Plan(2));
  damaged[100] = damaged[100] == '0' ? '1' : '0';
  const std::string good = PlanLine(kDevice, Key(4), Plan(4));
  WriteFile(file.path(), std::string("\n\0 what is this\n", 16) + damaged + '\n' +
                             PlanLine("NVIDIA A100", Key(3), Plan(3)) + '\n' + good + '\n' +
                             PlanLine(kDevice, Key(5), Plan(5)).substr(0, 100));
  EXPECT_EQ(file.Read(), (PlanTexts{{Key(4), Plan(4)}}));
  Keep(file, Key(6), Plan(6));
  EXPECT_EQ(ReadFile(file.path()), good + '\n' + PlanLine(kDevice, Key(6), Plan(6)) + '\n');
}

TEST(PlanFile, EachDeviceAndKindHasItsOwn) {
  const std::string folder = NewFolder();
  const PlanFile one = FileIn(folder);
  const PlanFile other =
      FileIn(folder, "NVIDIA H100 80GB HBM3, 132 multiprocessors, cuBLASLt 130101");
  const PlanFile of_convolutions(folder, "convolutions", kDevice);
  EXPECT_EQ(fs::path(one.path()).filename(),
            "products-NVIDIA-H200-132-multiprocessors-cuBLASLt-130101.txt");
  Keep(one, Key(1), Plan(1));
  Keep(other, Key(1), Plan(2));
  Keep(of_convolutions, Key(1), Plan(3));
  EXPECT_EQ(Find(one, Key(1)), Plan(1));
  EXPECT_EQ(Find(other, Key(1)), Plan(2));
  EXPECT_EQ(Find(of_convolutions, Key(1)), Plan(3));
  // Checks that the lines of another device's file, which somebody copied by hand, are ignored.
  fs::copy_file(one.path(), other.path(), fs::copy_options::overwrite_existing);
  EXPECT_FALSE(Find(other, Key(1)));
}

TEST(PlanFile, ManyWriteAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kKeys = 10;
  const std::string folder = NewFolder();
  std::vector<std::string> of_shared_key(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const PlanFile file = FileIn(folder);
        for (int i = 0; i < kKeys; ++i) {
          const int number = 1000 + thread * kKeys + i;
          Keep(file, Key(number), Plan(number));
        }
        of_shared_key[thread] = Keep(file, Key(1), Plan(thread));
      });
    }
  }
  const PlanFile file = FileIn(folder);
  for (int number = 1000; number < 1000 + kThreads * kKeys; ++number) {
    EXPECT_EQ(Find(file, Key(number)), Plan(number)) << number;
  }
  for (const std::string& plan : of_shared_key) EXPECT_EQ(Find(file, Key(1)), plan);
  // Only the file and its lock file are left in the folder.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

TEST(PlanFile, GoesWithoutAFolder) {
  const PlanFile none = FileIn("");
  EXPECT_EQ(Keep(none, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(none, Key(1)));
  // A folder cannot be created below a regular file, not even by root.
  const PlanFile below_a_file = FileIn(WriteTestFile("no-folder", "text") + "/folder");
  EXPECT_EQ(Keep(below_a_file, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(below_a_file, Key(1)));
  const PlanFile is_folder = FileIn(NewFolder());
  fs::create_directory(is_folder.path());
  EXPECT_EQ(Keep(is_folder, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(is_folder, Key(1)));
}

TEST(PlanFile, AFullDiskKeepsWhatWasThere) {
  const std::string folder = NewFolder();
  const PlanFile file = FileIn(folder);
  Keep(file, Key(1), Plan(1));
  {
    const LimitedFileSize limit(300);
    EXPECT_EQ(Keep(file, Key(2), Plan(2)), Plan(2));
  }
  EXPECT_EQ(Find(file, Key(1)), Plan(1));
  EXPECT_FALSE(Find(file, Key(2)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace lockstep::ops
