#include "base/http/own_hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>

#include <algorithm>
#include <string_view>

#include "base/host_name.h"
#include "base/small_letters.h"

namespace lockstep {
namespace {

bool IsAddress(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return true;
  return host.starts_with('[') && host.ends_with(']') &&
         inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six) == 1;
}

}  // namespace

OwnHosts::OwnHosts(bool is_loopback)
    : is_loopback_(is_loopback), names_{"localhost", "127.0.0.1", "[::1]"} {
  const std::string name = InSmallLetters(HostName());
  short_name_ = name.substr(0, name.find('.'));
  if (!name.empty()) names_.push_back(name);
  if (!short_name_.empty() && short_name_ != name) names_.push_back(short_name_);
}

bool OwnHosts::Contains(const std::string& host) const {
  if (std::ranges::find(names_, host) != names_.end()) return true;
  if (is_loopback_) return false;
  const size_t dot = host.find('.');
  return IsAddress(host) || (dot != host.npos && dot > 0 && host.substr(0, dot) == short_name_);
}

std::string OwnHosts::Text() const {
  return fmt::format("{}{}", fmt::join(names_, ", "), is_loopback_ ? "" : ", addresses in numbers");
}

}  // namespace lockstep
