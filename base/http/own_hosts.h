// OwnHosts: the names and addresses by which clients may call a server of this machine.
//
// A page of a stranger may make a browser on this machine send requests to a server here, under a name of the stranger
// that the stranger's name server gives an address of this machine (DNS rebinding). The browser would then let the
// stranger's page read the replies. Such requests have the stranger's name in their Host header.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

class OwnHosts {
 public:
  // `is_loopback` says whether only processes of this machine can reach the server.
  explicit OwnHosts(bool is_loopback);

  // Returns whether `host` (HttpRequest::host) is localhost, 127.0.0.1, [::1] or the machine's name. If others can reach
  // the server, any address in numbers is allowed, too, because the machine may have a further one behind a router, and
  // so is the machine's name (but not localhost) with a domain behind it.
  bool Contains(const std::string& host) const;

  // Returns what Contains() allows, in words.
  std::string Text() const;

 private:
  bool is_loopback_;
  std::vector<std::string> names_;
  std::string short_name_;  // the machine's name without its domain
};

}  // namespace lockstep
