#include "launch/job/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host_name.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

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

TEST(Hosts, AreReadFromAHostFile) {
  const std::string path = WriteTestFile(
      "hosts", "# two machines\n\nnode1 slots=8\r\n  10.0.0.7\tslots=4 max_slots=8 # old\nnode3\n");
  EXPECT_EQ(HostsOf("@" + path), "node1:8,10.0.0.7:4,node3:1");
  EXPECT_EQ(HostsOf("node1:8"), "node1:8");
  EXPECT_EQ(HostsOf(""), "");
}

TEST(Hosts, RefusesWhatIsNoHostFile) {
  const auto message = [](const std::string& text) {
    const std::string path = WriteTestFile("hosts", text);
    return MessageOf(ExitStatus::kUsage, [&] { HostsOf("@" + path); });
  };
  EXPECT_THAT(message("node1 slots=8\nnode2 8\n"), HasSubstr("hosts:2: \"8\" is no setting"));
  EXPECT_THAT(message("node1 slots=x\n"), HasSubstr("hosts:1: \"node1:x\" is no machine"));
  EXPECT_THAT(message("a,b slots=2\n"), HasSubstr("hosts:1: \"a,b:2\" is no machine"));
  EXPECT_THAT(message("# nobody\n"), HasSubstr("the file names no machine"));
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [] { HostsOf("@/nowhere/hosts"); }),
              HasSubstr("/nowhere/hosts: "));
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
