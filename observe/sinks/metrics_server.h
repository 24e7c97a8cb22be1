// MetricsServer: answers GET /metrics on a port with the page of the last SetPage() (base/http/http_server.h).
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is in use or not allowed, or the address is not this machine's -> Error (kUsage) with the system's reason
//     from the constructor -> ExporterTest.NamesThePortThatIsTaken, ExporterTest.NamesAnAddressThatIsNotThisMachines
#pragma once

#include <mutex>
#include <string>

#include "base/http/http_server.h"

namespace lockstep {

class MetricsServer {
 public:
  // Listens on `port` of `address`, which is an IPv4 or IPv6 address in numbers. Throws Error (kUsage).
  MetricsServer(const std::string& address, int port);

  // Sets the page for the requests that follow.
  void SetPage(std::string page);

 private:
  HttpReply ReplyTo(const HttpRequest& request);

  std::mutex mutex_;
  std::string page_;
  HttpServer server_;
};

}  // namespace lockstep
