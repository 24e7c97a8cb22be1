#include "launch/job/over_ssh.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(OverSsh, FindsTheMachineBehindOptions) {
  EXPECT_EQ(MachineOf({"node2", "PRTE_PREFIX=/usr", "prted"}), "node2");
  EXPECT_EQ(MachineOf({"-x", "-o", "BatchMode=yes", "-oConnectTimeout=10", "node2", "prted"}),
            "node2");
  EXPECT_EQ(MachineOf({"-p22", "-xp", "22", "me@node2", "prted"}), "me@node2");
  EXPECT_EQ(MachineOf({"-x"}), "");
  EXPECT_EQ(MachineOf({"-p"}), "");
}

TEST(OverSsh, SaysWhichMachineIsLost) {
  EXPECT_EQ(MachineInLostLine(LostLine("node2")), "node2");
  EXPECT_EQ(MachineInLostLine("lockstep: lost node2"), "");
  EXPECT_EQ(MachineInLostLine("lockstep: error: lost\n"), "");
}

TEST(OverSsh, ReturnsTheStatusOfSshAndSaysWhereItFailed) {
  EXPECT_EQ(RunOverSsh({"env", "sh", "-c", "exit 3"}), 3);
  for (const char* failure : {"exit 255", "kill -9 $$"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(RunOverSsh({"env", "sh", "-c", failure}), 255);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "lockstep: lost sh\n");
  }
}

TEST(OverSsh, LeavesOutWhatMpirunWouldDivide) {
  EXPECT_EQ(AgentThrough("/a/lockstep", "ssh -p 22"), "/a/lockstep over-ssh ssh -p 22");
  EXPECT_EQ(AgentThrough("/a b/lockstep", "ssh"), "");
  EXPECT_EQ(AgentThrough("/a:b/lockstep", "ssh"), "");
  EXPECT_EQ(AgentThrough("/a/lockstep", "ssh : rsh"), "");
}

}  // namespace
}  // namespace lockstep
