#include "launch/job/hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <memory>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/host_name.h"

namespace lockstep {
namespace {

constexpr uint32_t kLoopback = 127;  // the first byte of the addresses of the machine itself

uint32_t AddressIn(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

std::optional<uint32_t> AddressOf(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  return AddressIn(found->ai_addr);
}

}  // namespace

std::vector<Host> ParseHosts(const std::string& list) {
  std::vector<Host> hosts;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string ranks = colon < word.size() ? word.substr(colon + 1) : "1";
    Host host{.name = word.substr(0, colon)};
    const auto end = std::from_chars(ranks.data(), ranks.data() + ranks.size(), host.ranks);
    constexpr int kMostRanks = 4096;
    if (colon == 0 || end.ec != std::errc() || end.ptr != ranks.data() + ranks.size() ||
        host.ranks < 1 || host.ranks > kMostRanks) {
      throw UsageError("--hosts \"{}\": \"{}\" is no machine with its ranks: write node1:8,node2:8",
                       list, word);
    }
    hosts.push_back(host);
  }
  return hosts;
}

std::string HostsOf(const std::string& hosts) {
  if (!hosts.starts_with('@')) return hosts;
  const std::string path = hosts.substr(1);
  std::string why;
  constexpr size_t kMostText = size_t{1} << 20;
  std::istringstream lines(ReadGivenFile(path, kMostText, why));
  if (!why.empty()) throw UsageError("--hosts {}: {}", hosts, why);
  std::string list;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    std::string ranks = "1";
    for (std::string word; words >> word;) {
      constexpr std::string_view kSlots = "slots=";
      if (word.starts_with(kSlots)) {
        ranks = word.substr(kSlots.size());
      } else if (word.find('=') == std::string::npos) {
        throw UsageError("{}:{}: \"{}\" is no setting of a machine: write node1 slots=8", path,
                         number, word);
      }
    }
    const std::string host = fmt::format("{}:{}", name, ranks);
    const auto is_one = [&] {
      try {
        return ParseHosts(host).size() == 1;
      } catch (const Error&) {
        return false;
      }
    };
    if (!is_one()) {
      throw UsageError("{}:{}: \"{}\" is no machine with its ranks: write node1 slots=8", path,
                       number, host);
    }
    if (!list.empty()) list += ',';
    list += host;
  }
  if (list.empty()) throw UsageError("--hosts {}: the file names no machine", hosts);
  return list;
}

bool IsThisMachine(const std::string& name) {
  if (name == HostName()) return true;
  const std::optional<uint32_t> address = AddressOf(name);
  if (!address) return false;
  if (*address >> 24 == kLoopback) return true;
  return std::ranges::any_of(
      InterfacesHere(), [&](const Interface& interface) { return interface.address == *address; });
}

int RanksHere(const std::vector<Host>& hosts, int ranks) {
  int here = 0;
  for (const Host& host : hosts) {
    const int on_host = std::min(host.ranks, ranks);
    if (on_host > 0 && IsThisMachine(host.name)) here += on_host;
    ranks -= on_host;
  }
  return here;
}

std::vector<Interface> InterfacesHere() {
  std::vector<Interface> interfaces;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const bool is_up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    interfaces.push_back({at->ifa_name, AddressIn(at->ifa_addr), AddressIn(at->ifa_netmask)});
  }
  return interfaces;
}

std::string NetworkOf(const std::vector<uint32_t>& addresses,
                      const std::vector<Interface>& interfaces) {
  const Interface* smallest = nullptr;
  for (const Interface& interface : interfaces) {
    // A network with a single address (mask 255.255.255.255) is left out, because Open MPI would treat this mask as one
    // that matches all addresses.
    const bool holds_all =
        interface.mask != ~0U && std::ranges::all_of(addresses, [&](uint32_t address) {
          return (address & interface.mask) == (interface.address & interface.mask);
        });
    if (holds_all && (smallest == nullptr || interface.mask > smallest->mask)) {
      smallest = &interface;
    }
  }
  if (smallest == nullptr) return "";
  const uint32_t network = smallest->address & smallest->mask;
  return fmt::format("{}.{}.{}.{}/{}", network >> 24, network >> 16 & 255, network >> 8 & 255,
                     network & 255, std::popcount(smallest->mask));
}

std::string NetworkBetween(const std::vector<Host>& hosts) {
  std::vector<uint32_t> addresses;
  for (const Host& host : hosts) {
    const std::optional<uint32_t> address = AddressOf(host.name);
    if (!address) return "";
    if (*address >> 24 == kLoopback) continue;  // Debian maps the machine's own name to 127.0.1.1
    addresses.push_back(*address);
  }
  if (addresses.empty()) return "";
  return NetworkOf(addresses, InterfacesHere());
}

}  // namespace lockstep
