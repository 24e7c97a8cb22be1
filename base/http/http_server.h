// HttpServer: answers GET and HEAD requests on a port with the replies that a function returns. The server runs on a
// separate thread.
//
// HttpServer uses the HTTP server of libevent, because Open MPI needs libevent anyway. Two other libraries are not
// used: CivetWeb's threads have stacks of only 100 KiB, and cuBLASLt's thread-local variables alone take that much;
// Debian's cpp-httplib would add OpenSSL and Brotli to every bundle.
//
// Invariants:
//   1. The function is called on the server's thread only, for one request at a time.
//   2. When the destructor has returned, the function is not called any more.
//
// what can fail -> what the caller sees -> the test that shows it (base/http/http_server_test.cc)
//   the port is in use or not allowed, or the address is not this machine's -> Error (kUsage) with the system's reason
//     from the constructor -> HttpServer.NamesAPortThatIsTaken, HttpServer.NamesAnAddressThatIsNotThisMachines
//   the function throws -> the client gets status 500 with the message -> HttpServer.AnswersWithWhatTheHandlerReturns
//   a client sends nothing -> its connection is closed after 5 s
//   a client sends headers or a body of more than 8 KiB -> its connection is closed at once
//     -> HttpServer.RefusesLongRequests
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"

struct event_base;
struct evhttp;
struct evhttp_request;

namespace lockstep {

struct HttpRequest {
  std::string path;                           // "/metrics", decoded
  std::map<std::string, std::string> values;  // the query's keys and values, decoded
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  struct Options {
    std::string address;  // an IPv4 or IPv6 address in numbers
    int port = 0;         // 0: the system chooses a free port
    // The names of the fields or options in which the user sets the port and the address, for error messages.
    std::string port_name;
    std::string address_name;
    std::string remark{};  // the end of each error message
  };

  // Begins to listen and to answer requests. Throws Error (kUsage).
  HttpServer(const Options& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

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

  Handler handler_;
  FileDescriptor wake_;  // an eventfd, which tells the thread to end
  std::unique_ptr<event_base, Free<FreeBase>> base_;
  std::unique_ptr<evhttp, Free<FreeHttp>> http_;
  int port_ = 0;
  std::thread thread_;
};

// Returns whether only processes of this machine can reach `address`, a numeric IP address.
bool IsLoopback(const std::string& address);

}  // namespace lockstep
