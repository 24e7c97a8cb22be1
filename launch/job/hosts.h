// Hosts: the machines of --hosts, and the networks between them.
//
// what can fail -> what the caller sees -> the test that shows it
//   no list of machines -> Error (kUsage) -> launch/job/hosts_test.cc
//   interfaces that lead nowhere (docker0) -> NetworkOf() names the network that connects the machines
//     -> tests/network_test.py, test_a_bridge_for_containers
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Host {
  std::string name;
  int ranks = 1;
};

// "node1:8,node2:8". Throws Error (kUsage).
std::vector<Host> ParseHosts(const std::string& list);

// An interface of this machine that is up, by its IPv4 address and network mask, in host order.
struct Interface {
  std::string name;
  uint32_t address = 0;
  uint32_t mask = 0;
};

// But for the loopback.
std::vector<Interface> InterfacesHere();

// The network, "10.0.0.0/16", that one of `interfaces` and all of `addresses` are in, the smallest; empty: none.
std::string NetworkOf(const std::vector<uint32_t>& addresses,
                      const std::vector<Interface>& interfaces);

// The network that connects this machine and `hosts`; empty: it is not known.
std::string NetworkBetween(const std::vector<Host>& hosts);

}  // namespace lockstep
