// HttpServer: answers GET and HEAD requests on a port with the replies that a function returns. The server runs on a
// separate thread.
//
// Promise: strangers who reach the port take a bounded share of the process's descriptors, memory and time, whatever
// they send or do not send. The server has at most Limits::connections connections. If another client comes, the oldest
// connection whose request is not complete is closed, or, if there is none, the oldest. A whole request must come, and a
// whole reply be taken, within a time. If the process has no descriptor left, the server closes the connections that
// still send and accepts no others for a second. The first of these events is told in one line.
//
// HttpServer uses the event loop and the parsers of libevent, because Open MPI needs libevent anyway. Libevent's own HTTP
// server (evhttp, 2.1) is not used: it limits neither the number of connections nor the time of a whole request, prints
// a line for each connection that it cannot accept, and does not give its connections away. Two other libraries are not
// used either: CivetWeb's threads have stacks of only 100 KiB, and cuBLASLt's thread-local variables alone take that
// much; Debian's cpp-httplib would add OpenSSL and Brotli to every bundle.
//
// Protocol of a connection:
//   1. The client sends the head of a request. What comes behind the head is ignored.
//   2. The server sends the reply, and closes its direction of the connection: one connection is for one request.
//   3. When the client has closed the other direction, or after Limits::reply_s, the connection is closed.
//
// Invariants:
//   1. The function is called on the server's thread only, for one request at a time.
//   2. When the destructor has returned, the function is not called any more.
//
// what can fail -> what the caller sees -> the test that shows it (base/http/http_server_test.cc)
//   the port is in use or not allowed, or the address is not this machine's -> Error (kUsage) with the system's reason
//     from the constructor -> HttpServer.NamesAPortThatIsTaken, HttpServer.NamesAnAddressThatIsNotThisMachines
//   the function throws -> the client gets status 500 with the message -> HttpServer.AnswersWithWhatTheHandlerReturns
//   a client sends nothing, or a byte now and then -> its connection is closed when the time is over
//     -> HttpServer.ClosesConnectionsThatDrip
//   more clients than there may be connections -> the oldest connection is closed, and one warning
//     -> HttpServer.AnswersBesideManyIdleConnections
//   no descriptor is left -> one warning; clients wait -> HttpServer.WaitsForDescriptors
//   a client sends a head of more than 8 KiB -> its connection is closed at once -> HttpServer.RefusesLongRequests
//   a request names another host than this machine -> status 421 -> HttpServer.AnswersToItsOwnNamesOnly
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/http/http_request.h"

namespace lockstep {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  struct Limits {
    int connections = 32;
    double request_s = 5;  // the time for a whole request
    double reply_s = 30;   // the time in which a client must have taken the reply
  };

  struct Options {
    std::string address;  // an IPv4 or IPv6 address in numbers
    int port = 0;         // 0: the system chooses a free port
    // The names of the fields or options in which the user sets the port and the address, for error messages.
    std::string port_name;
    std::string address_name;
    std::string remark{};  // the end of each error message
    // Whether the server answers requests to whatever name a client calls it by, instead of to this machine's names
    // only (base/http/own_hosts.h). For handlers that want a secret in each request.
    bool any_host = false;
    Limits limits{};
  };

  // Begins to listen and to answer requests. Throws Error (kUsage).
  HttpServer(const Options& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  class Loop;

  FileDescriptor wake_;  // an eventfd, which tells the thread to end
  std::unique_ptr<Loop> loop_;
  int port_ = 0;
  std::thread thread_;
};

// Returns whether only processes of this machine can reach `address`, a numeric IP address.
bool IsLoopback(const std::string& address);

}  // namespace lockstep
