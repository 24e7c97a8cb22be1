#include "launch/job/relay.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::string kMetText = TextOf(Sign::kMet);

TEST(SignReader, TakesSignsOut) {
  SignReader reader;
  EXPECT_EQ(reader.Add("lockstep: one\n" + kMetText + "two\n"), "lockstep: one\ntwo\n");
  EXPECT_TRUE(reader.Has(Sign::kMet));
  EXPECT_FALSE(reader.Has(Sign::kLeaves));
  EXPECT_EQ(reader.Add("three" + TextOf(Sign::kLeaves)), "three");
  EXPECT_TRUE(reader.Has(Sign::kLeaves));
}

TEST(SignReader, FindsThemInPiecesOfAnySize) {
  const std::string text = "lockstep: a\n" + kMetText + "b\x1e" + "c\n" + TextOf(Sign::kTrains);
  for (size_t size = 1; size <= text.size(); ++size) {
    SignReader reader;
    std::string passed;
    for (size_t at = 0; at < text.size(); at += size) passed += reader.Add(text.substr(at, size));
    passed += reader.Finish();
    EXPECT_EQ(passed,
              "lockstep: a\nb\x1e"
              "c\n")
        << size;
    EXPECT_TRUE(reader.Has(Sign::kMet) && reader.Has(Sign::kTrains)) << size;
  }
}

TEST(SignReader, HoldsBackWhatALauncherSaysUntilRanksHaveMet) {
  SignReader reader;
  EXPECT_EQ(reader.Add("-----\nno such policy\nlockstep: error: mine\nmo"),
            "lockstep: error: mine\n");
  EXPECT_TRUE(reader.has_error());
  EXPECT_EQ(reader.held(), "-----\nno such policy\n");
  EXPECT_EQ(reader.Add("re\n" + kMetText), "-----\nno such policy\nmore\n");
  EXPECT_EQ(reader.held(), "");
}

TEST(SignReader, HoldsBackThePageOfAnEnd) {
  const std::string rule = std::string(74, '-') + "\n";
  const std::string page = rule + "prterun detected that a process\n\n   Exit code:    75\n" + rule;
  const std::string text = kMetText + "a\n" + page + "b\n" + rule + "a table\n" + rule;
  for (size_t size = 1; size <= text.size(); ++size) {
    SignReader reader;
    std::string passed;
    for (size_t at = 0; at < text.size(); at += size) passed += reader.Add(text.substr(at, size));
    EXPECT_EQ(passed + reader.Finish(), "a\nb\n" + rule + "a table\n" + rule) << size;
    EXPECT_EQ(reader.held(), page) << size;
  }
}

TEST(SignReader, HoldsBackThePagesOfOpenMpi4) {
  const std::string rule = std::string(74, '-') + "\n";
  for (const std::string first :
       {"Primary job  terminated normally, but 1 process returned\n",
        "mpirun noticed that process rank 3 with PID 0 on node b exited\n",
        "ORTE does not know how to route a message to the daemon\n"}) {
    SignReader reader;
    const std::string page = rule + first + "more of it\n" + rule;
    EXPECT_EQ(reader.Add(kMetText + page + "a\n"), "a\n");
    EXPECT_EQ(reader.held(), page);
  }
}

TEST(SignReader, HoldsBackThePageOfALostMachine) {
  const std::string rule = std::string(60, '-') + "\n";
  const std::string page = rule + "PRTE has lost communication with a remote daemon.\n" + rule;
  SignReader reader;
  EXPECT_EQ(reader.Add(kMetText + page + "a\n"), "a\n");
  EXPECT_EQ(reader.held(), page);
}

TEST(SignReader, TakesLostConnectionsAndZeroBytesOut) {
  const std::string text = kMetText + "a\nlockstep: lost b\nlockstep: lost c\nlocks" +
                           std::string(1, '\0') + "mith\n" + "lockstep: warning: d\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    SignReader reader;
    std::string passed;
    for (size_t at = 0; at < text.size(); at += size) passed += reader.Add(text.substr(at, size));
    EXPECT_EQ(passed + reader.Finish(), "a\nlocksmith\nlockstep: warning: d\n") << size;
    EXPECT_EQ(reader.lost(), "b") << size;
  }
}

TEST(SignReader, PassesOurLinesInsideOfAPage) {
  SignReader reader;
  reader.Add(kMetText + std::string(74, '-') + "\nmpirun noticed that\n");
  EXPECT_EQ(reader.Add("lockstep: error: mine\n"), "lockstep: error: mine\n");
  EXPECT_EQ(reader.Add("12 %"), "");
  EXPECT_EQ(reader.Finish(), "");
}

TEST(SignReader, SaysInTheEndWhatWasHeld) {
  SignReader reader;
  EXPECT_EQ(reader.Add("no rank\x1e"
                       "lockst"),
            "");
  EXPECT_EQ(reader.Finish(), "");
  EXPECT_EQ(reader.held(),
            "no rank\x1e"
            "lockst");
}

}  // namespace
}  // namespace lockstep
