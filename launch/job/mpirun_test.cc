#include "launch/job/mpirun.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MachineLostIn, ReadsPagesOfMpirun) {
  EXPECT_EQ(MachineLostIn("PRTE has lost communication with a remote daemon.\n\n"
                          "  HNP daemon   : [prterun-a-23959@0,0] on node a\n"
                          "  Remote daemon: [prterun-a-23959@0,1] on node b\n\n"
                          "This is usually due to\n"),
            "b");
  EXPECT_EQ(MachineLostIn("ORTE has lost communication with a remote daemon.\n\n"
                          "  HNP daemon   : [[27,0],0] on node login\n"
                          "  Remote daemon: [[27,0],1] on node node-2.site\n"),
            "node-2.site");
  EXPECT_EQ(MachineLostIn("A daemon failed to report back after being spawned.\n\n"
                          "  Local host:    a\n  Remote host:   b\n  Daemon exit status: 255\n"),
            "b");
}

TEST(MachineLostIn, IsEmptyForOtherTexts) {
  EXPECT_EQ(MachineLostIn(""), "");
  EXPECT_EQ(MachineLostIn("prterun noticed that process rank 2 with PID 7 on node b exited\n"), "");
  EXPECT_EQ(MachineLostIn("Remote daemon: cut off"), "");
  EXPECT_EQ(MachineLostIn("Remote host:   "), "");
}

}  // namespace
}  // namespace lockstep
