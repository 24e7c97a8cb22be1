// MetricsServer: answers GET /metrics on a port with the last page that it was given, by a thread of its own.
//
// HTTP is libevent's, which Open MPI needs anyway. (CivetWeb's threads have stacks of 100 KiB, which cuBLASLt's
// thread-local variables alone fill. Debian's cpp-httplib would add OpenSSL and Brotli to every bundle.)
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is taken or not to be had -> Error (kUsage) with the system's reason -> ExporterTest.NamesThePortThatIsTaken
//   a client that says nothing, or much -> its connection is closed after a few seconds, or at once
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
  // `address`: in numbers. Throws Error.
  MetricsServer(const std::string& address, int port);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

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

  FileDescriptor wake_;  // an eventfd: the thread ends
  std::unique_ptr<event_base, Free<FreeBase>> base_;
  std::unique_ptr<evhttp, Free<FreeHttp>> http_;
  std::mutex mutex_;
  std::string page_;
  std::thread thread_;
};

}  // namespace lockstep
