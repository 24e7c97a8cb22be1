#include "launch/job/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host_name.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr uint32_t Ip(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

TEST(Hosts, AreNamesWithTheirRanks) {
  const std::vector<Host> hosts = ParseHosts("node1:8,10.0.0.7,c:1");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "node1");
  EXPECT_EQ(hosts[0].ranks, 8);
  EXPECT_EQ(hosts[1].name, "10.0.0.7");
  EXPECT_EQ(hosts[1].ranks, 1);
}

TEST(Hosts, RefusesWhatIsNoList) {
  for (const char* list : {"a:x", "a:0", "a:-1", ":2", "a:2,,b:2", "a:2x", "a:", "a:99999999999"}) {
    EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { ParseHosts(list); }),
                HasSubstr("is no machine with its ranks: write node1:8,node2:8"));
  }
}

TEST(Hosts, ThisMachineIsOneOfThem) {
  EXPECT_TRUE(IsThisMachine("localhost"));
  EXPECT_TRUE(IsThisMachine(HostName()));
  EXPECT_TRUE(IsThisMachine("127.0.0.1"));
  EXPECT_FALSE(IsThisMachine("192.0.2.1"));  // an address of documentation
  const std::vector<Host> hosts = ParseHosts("192.0.2.1:4,localhost:4");
  EXPECT_EQ(RanksHere(hosts, 8), 4);
  EXPECT_EQ(RanksHere(hosts, 6), 2);
  EXPECT_EQ(RanksHere(hosts, 3), 0);
}

TEST(Hosts, TheSmallestNetworkThatHoldsAllConnectsThem) {
  const std::vector<Interface> interfaces{{"docker0", Ip(172, 17, 0, 1), Ip(255, 255, 0, 0)},
                                          {"wide", Ip(10, 0, 0, 1), Ip(255, 0, 0, 0)},
                                          {"eth0", Ip(10, 77, 0, 1), Ip(255, 255, 255, 0)},
                                          {"one", Ip(10, 77, 0, 2), ~0U}};
  EXPECT_EQ(NetworkOf({Ip(10, 77, 0, 2), Ip(10, 77, 0, 1)}, interfaces), "10.77.0.0/24");
  EXPECT_EQ(NetworkOf({Ip(10, 77, 0, 2), Ip(10, 78, 0, 1)}, interfaces), "10.0.0.0/8");
  EXPECT_EQ(NetworkOf({Ip(10, 77, 0, 2), Ip(192, 168, 0, 1)}, interfaces), "");
}

}  // namespace
}  // namespace lockstep
