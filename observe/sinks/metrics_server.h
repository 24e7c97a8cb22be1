// MetricsServer: answers GET /metrics on a port with the last page that it was given. A thread of its own does so.
//
// The HTTP server is that of libevent, which Open MPI needs anyway. (CivetWeb's threads have stacks of 100 KiB, which
// the thread-local variables of cuBLASLt alone fill. Debian's cpp-httplib would add OpenSSL and Brotli to every
// bundle.)
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is in use or not allowed, or the address is not this machine's -> Error (kUsage) with the system's reason
//     from the constructor -> ExporterTest.NamesThePortThatIsTaken, ExporterTest.NamesAnAddressThatIsNotThisMachines
//   a client sends nothing -> its connection is closed after a few seconds
//   a client sends more than 8 KiB -> its connection is closed at once
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/files/file_descriptor.h"

struct event_base;
struct evhttp;
struct evhttp_request;

namespace lockstep {

class MetricsServer {
 public:
  // Listens on `port` of `address`, which is an IPv4 or IPv6 address in numbers. Throws Error (kUsage).
  MetricsServer(const std::string& address, int port);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // From now on answers with `page`.
  void SetPage(std::string page);

 private:
  static void Answer(evhttp_request* request, void* self);

  template <auto free>
  struct Free {
    template <typename Object>
    void operator()(Object* object) const {
      free(object);
    }
  };
  static void FreeBase(event_base* base);
  static void FreeHttp(evhttp* http);

  FileDescriptor wake_;  // an eventfd, which tells the thread to end
  std::unique_ptr<event_base, Free<FreeBase>> base_;
  std::unique_ptr<evhttp, Free<FreeHttp>> http_;
  std::mutex mutex_;
  std::string page_;
  std::thread thread_;
};

}  // namespace lockstep
