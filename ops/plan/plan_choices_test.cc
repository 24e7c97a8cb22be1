// Tests which plan is chosen, with a fake library.

#include "ops/plan/plan_choices.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

struct Key {
  int number = 0;

  auto operator<=>(const Key&) const = default;
};
std::string Description(const Key& key) { return fmt::format("operation {}", key.number); }

// An operation of the fake library, whose plans are numbers. The first plan is 1, and a search finds the plan `found`.
class Operation : public PlannedOperation<int> {
 public:
  bool CanBeTimed() override { return can_be_timed; }
  std::optional<int> First() override {
    ++firsts;
    return has_plans ? std::optional(1) : std::nullopt;
  }
  int Search(const int& first) override {
    ++searches;
    EXPECT_EQ(first, 1);
    TORCH_CHECK(runs, "the first does not run");
    if (!has_memory) throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory");
    return found;
  }
  std::string Text(const int& plan) const override { return fmt::format("plan {}", plan); }
  std::optional<int> Parsed(const std::string& text) override {
    for (int plan = 0; plan < 10; ++plan) {
      if (plan != refused && text == Text(plan)) return plan;
    }
    return std::nullopt;
  }

  int found = 2;
  int refused = -1;
  bool can_be_timed = true;
  bool has_plans = true;
  bool has_memory = true;
  bool runs = true;
  int firsts = 0;
  int searches = 0;
};

class Choices : public PlanChoices<Key, int> {
 public:
  explicit Choices(const std::string& folder)
      : PlanChoices(folder, "tests",
                    [](c10::DeviceIndex device) { return fmt::format("GPU {}", int{device}); }) {}

  // Returns the chosen plan, or 0 if there is none.
  int Take(Operation& operation, int key = 1, bool searches = true) {
    const int* const plan = Choose(/*device=*/0, Key{key}, operation, searches);
    return plan == nullptr ? 0 : *plan;
  }
  PlanSource Source() const { return Reports().at(0).source; }
};

class PlanChoicesTest : public testing::Test {
 protected:
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  std::string folder_ = NewFolder();
  Operation operation_;
};

TEST_F(PlanChoicesTest, SearchesOnce) {
  Choices choices(folder_);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(choices.Take(operation_), 2);
  EXPECT_EQ(operation_.searches, 1);
  EXPECT_EQ(operation_.firsts, 1);
  EXPECT_EQ(choices.Source(), PlanSource::kSearched);
}

TEST_F(PlanChoicesTest, TheNextProcessNeedNotSearch) {
  Choices(folder_).Take(operation_);
  Operation next;
  Choices choices(folder_);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(choices.Take(next, /*key=*/1, /*searches=*/false), 2);
  EXPECT_EQ(next.firsts, 0);
  EXPECT_EQ(next.searches, 0);
  EXPECT_EQ(choices.Source(), PlanSource::kFile);
}

TEST_F(PlanChoicesTest, EachOperationAndDeviceHasItsOwn) {
  Choices choices(folder_);
  EXPECT_EQ(choices.Take(operation_, 1), 2);
  operation_.found = 3;
  EXPECT_EQ(choices.Take(operation_, 2), 3);
  operation_.found = 4;
  EXPECT_EQ(*choices.Choose(/*device=*/1, Key{1}, operation_, /*searches=*/true), 4);
  EXPECT_EQ(choices.Take(operation_, 1), 2);
  EXPECT_EQ(choices.Reports().size(), 3u);
}

TEST_F(PlanChoicesTest, WhoSearchedAtTheSameTimeTakesTheOthers) {
  Choices one(folder_);
  Choices other(folder_);
  operation_.can_be_timed = false;
  one.Take(operation_);
  other.Take(operation_);
  operation_.can_be_timed = true;
  EXPECT_EQ(one.Take(operation_), 2);
  operation_.found = 3;
  EXPECT_EQ(other.Take(operation_), 2);
  EXPECT_EQ(other.Source(), PlanSource::kFile);
}

TEST_F(PlanChoicesTest, ReplacesWhatIsOfNoUse) {
  Choices(folder_).Take(operation_);
  operation_.refused = 2;
  operation_.found = 3;
  Choices choices(folder_);
  EXPECT_EQ(choices.Take(operation_), 3);
  EXPECT_EQ(choices.Source(), PlanSource::kSearched);
  Choices third(folder_);
  EXPECT_EQ(third.Take(operation_), 3);
  EXPECT_EQ(third.Source(), PlanSource::kFile);
}

TEST_F(PlanChoicesTest, GoesWithoutAFolder) {
  Choices choices("");
  EXPECT_EQ(choices.Take(operation_), 2);
  EXPECT_EQ(choices.Source(), PlanSource::kSearched);
}

TEST_F(PlanChoicesTest, TheFirstWhereNothingCanBeSearchedFor) {
  Choices choices(folder_);
  EXPECT_EQ(choices.Take(operation_, /*key=*/1, /*searches=*/false), 1);
  operation_.can_be_timed = false;
  EXPECT_EQ(choices.Take(operation_), 1);
  EXPECT_EQ(choices.Source(), PlanSource::kFirst);
  EXPECT_EQ(operation_.searches, 0);
  EXPECT_TRUE(fs::is_empty(folder_));
  operation_.can_be_timed = true;
  EXPECT_EQ(choices.Take(operation_), 2);
}

TEST_F(PlanChoicesTest, TheFirstWhereAlgorithmsMustBeDeterministic) {
  Choices choices(folder_);
  EXPECT_EQ(choices.Take(operation_), 2);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_EQ(choices.Take(operation_), 1);
  EXPECT_EQ(Choices(folder_).Take(operation_), 1);
  EXPECT_EQ(operation_.searches, 1);
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_EQ(choices.Take(operation_), 2);
}

TEST_F(PlanChoicesTest, ASearchThatFailsGivesTheFirst) {
  for (bool Operation::*const what : {&Operation::has_memory, &Operation::runs}) {
    Choices choices(folder_);
    Operation operation;
    operation.*what = false;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(choices.Take(operation), 1);
    EXPECT_EQ(operation.searches, 1);
    EXPECT_EQ(choices.Source(), PlanSource::kFirst);
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

TEST_F(PlanChoicesTest, ThereMayBeNone) {
  Choices choices(folder_);
  operation_.has_plans = false;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(choices.Take(operation_), 0);
  EXPECT_EQ(operation_.firsts, 1);
  EXPECT_EQ(operation_.searches, 0);
  EXPECT_TRUE(choices.Reports().empty());
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(PlanChoicesTest, DoesNotSearchForEver) {
  Choices choices("");
  for (int key = 0; key < 256; ++key) EXPECT_EQ(choices.Take(operation_, key), 2) << key;
  EXPECT_EQ(choices.Take(operation_, 256), 1);
  EXPECT_EQ(operation_.searches, 256);
}

}  // namespace
}  // namespace lockstep::ops
