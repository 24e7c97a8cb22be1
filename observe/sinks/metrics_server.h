// MetricsServer: answers GET /metrics on a port with the last page that it was given, by threads of its own.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is taken or not to be had -> Error (kUsage) with the system's reason -> ExporterTest.NamesThePortThatIsTaken
#pragma once

#include <memory>
#include <string>

namespace lockstep {

class MetricsServer {
 public:
  // Throws Error.
  MetricsServer(const std::string& address, int port);
  // Waits for answers that are under way, for a few seconds at most.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  void SetPage(std::string page);

 private:
  class Civetweb;
  std::unique_ptr<Civetweb> civetweb_;
};

}  // namespace lockstep
