// Hosts: reads the list of machines of the option --hosts, which may be in a host file, and finds the network between the
// machines.
//
// what can fail -> what the caller sees -> the test that shows it
//   a text is no list of machines, or a file no host file -> Error (kUsage) -> launch/job/hosts_test.cc
//   some interfaces do not lead to other machines (docker0) -> NetworkOf() names the network that connects the machines
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

// Parses a list such as "node1:8,node2:8". Throws Error (kUsage).
std::vector<Host> ParseHosts(const std::string& list);

// Returns `hosts` itself or, if `hosts` is "@FILE", the machines of FILE as a list such as "node1:8,node2:8". FILE is a
// host file of Open MPI: a line for each machine, such as `node1 slots=8`, and comments that begin with #. A machine
// without slots= gets one rank. Other settings of a line, such as max_slots=8, are ignored. Throws Error (kUsage).
std::string HostsOf(const std::string& hosts);

// Returns whether `name` is a name or an IPv4 address of this machine.
bool IsThisMachine(const std::string& name);

// Returns how many of the first `ranks` ranks run on this machine, if the ranks fill the machines in their order.
int RanksHere(const std::vector<Host>& hosts, int ranks);

// A network interface of this machine that is up, with its IPv4 address and network mask in host byte order.
struct Interface {
  std::string name;
  uint32_t address = 0;
  uint32_t mask = 0;
};

// Returns all interfaces of this machine that are up and have an IPv4 address, except the loopback interface.
std::vector<Interface> InterfacesHere();

// Returns the smallest network, such as "10.0.0.0/16", that contains all of `addresses` and is the network of one of
// `interfaces`; an empty string if there is none.
std::string NetworkOf(const std::vector<uint32_t>& addresses,
                      const std::vector<Interface>& interfaces);

// Returns the network that connects this machine and `hosts`, such as "10.0.0.0/16"; an empty string if it is unknown.
std::string NetworkBetween(const std::vector<Host>& hosts);

}  // namespace lockstep
