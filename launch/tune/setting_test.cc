#include "launch/tune/setting.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string TextOf(const Setting& setting) {
  std::string text;
  for (const FieldValue& field : setting) text += field.name + "=" + field.value + " ";
  return text;
}

// Makes SettingTrials that measure a setting as `speeds_` says. Each test fills `speeds_`; settings that are not in it
// have the speed 0.
class SettingTrialsTest : public testing::Test {
 protected:
  SettingTrials Begin(double end_s = kNever) {
    return {[this](const Setting& setting) {
              SettingTrial trial;
              trial.samples_per_s = speeds_[TextOf(setting)];
              if (TextOf(setting) == stops_at_) trial.stopped = ExitStatus::kInterrupted;
              return trial;
            },
            end_s, [this](const SettingTrial& trial) { told_.push_back(TextOf(trial.setting)); }};
  }

  std::map<std::string, double> speeds_;
  std::string stops_at_ = "nothing";
  std::vector<std::string> told_;
};

TEST_F(SettingTrialsTest, TriesEachOnTopOfTheBest) {
  speeds_ = {{"", 100}, {"a=1 ", 90}, {"a=2 ", 120}, {"a=2 b=1 ", 130}, {"a=3 b=1 ", 125}};
  SettingTrials trials = Begin();
  EXPECT_EQ(trials.Try({{"a", "1"}}), 90);
  trials.Try({{"a", "2"}});
  trials.Try({{"b", "1"}});
  trials.Try({{"a", "3"}});
  trials.Confirm();
  EXPECT_EQ(TextOf(trials.best().setting), "a=2 b=1 ");
  EXPECT_EQ(trials.best().samples_per_s, 130);
  EXPECT_EQ(trials.users().samples_per_s, 100);
  EXPECT_FALSE(trials.out_of_time());
  EXPECT_EQ(told_,
            (std::vector<std::string>{"", "a=1 ", "a=2 ", "a=2 b=1 ", "a=3 b=1 ", "", "a=2 b=1 "}));
}

TEST_F(SettingTrialsTest, KeepsTheUsersUnlessAnotherIsClearlyFaster) {
  speeds_ = {{"", 100}, {"a=1 ", 101}};
  SettingTrials trials = Begin();
  trials.Try({{"a", "1"}});
  trials.Confirm();
  EXPECT_TRUE(trials.best().is_users);
}

TEST_F(SettingTrialsTest, TakesAnotherWhereTheUsersCannotBeUsed) {
  speeds_ = {{"a=1 ", 1}};
  SettingTrials trials = Begin();
  trials.Try({{"a", "1"}});
  trials.Confirm();
  EXPECT_EQ(TextOf(trials.best().setting), "a=1 ");
}

TEST_F(SettingTrialsTest, HasTheUsersWhereThereIsNoTime) {
  speeds_ = {{"", 100}, {"a=1 ", 200}};
  SettingTrials trials = Begin(/*end_s=*/0);
  EXPECT_FALSE(trials.Try({{"a", "1"}}));
  trials.Confirm();
  EXPECT_TRUE(trials.out_of_time());
  EXPECT_TRUE(trials.best().is_users);
  EXPECT_EQ(trials.best().samples_per_s, 100);
}

TEST_F(SettingTrialsTest, KeepsWhatItHasWhenItIsStopped) {
  speeds_ = {{"", 100}, {"a=1 ", 200}};
  stops_at_ = "a=1 b=1 ";
  SettingTrials trials = Begin();
  trials.Try({{"a", "1"}});
  EXPECT_FALSE(trials.Try({{"b", "1"}}));
  EXPECT_FALSE(trials.Try({{"c", "1"}}));
  trials.Confirm();
  EXPECT_EQ(trials.stopped(), ExitStatus::kInterrupted);
  EXPECT_FALSE(trials.out_of_time());
  EXPECT_EQ(TextOf(trials.best().setting), "a=1 ");
}

}  // namespace
}  // namespace lockstep
