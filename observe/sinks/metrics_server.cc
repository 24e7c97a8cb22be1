#include "observe/sinks/metrics_server.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int kPatienceS = 5;
constexpr int kMostBytes = 8192;  // of a request

// Returns a socket that listens there, or none; `why` then says why not, and what to do.
FileDescriptor Listen(const std::string& address, int port, std::string& why) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    why = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> place(found, freeaddrinfo);
  FileDescriptor listener(socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Without this option, connections of a process that has ended would keep the port for a minute.
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener.get() >= 0 && bind(listener.get(), place->ai_addr, place->ai_addrlen) == 0 &&
      listen(listener.get(), SOMAXCONN) == 0) {
    return listener;
  }
  why = std::strerror(errno);
  if (errno == EADDRINUSE) {
    why += ": end what has the port, or set another";
  } else if (errno == EADDRNOTAVAIL) {
    why += ": set observe.prometheus_address to an address of this machine, or to 0.0.0.0";
  } else if (errno == EACCES) {
    why += ": set a port above 1023";
  }
  return {};
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, int port)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::string why;
  FileDescriptor listener = Listen(address, port, why);
  if (listener.get() < 0) {
    throw UsageError(
        "observe.prometheus_port: {}:{}: {} (the run goes on, and tries again each second)",
        address, port, why);
  }
  base_.reset(event_base_new());
  http_.reset(base_ ? evhttp_new(base_.get()) : nullptr);
  const bool listens = http_ && evhttp_accept_socket(http_.get(), listener.get()) == 0;
  if (!listens) throw BugError("observe.prometheus_port: libevent does not begin");
  listener.Release();
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  evhttp_set_timeout(http_.get(), kPatienceS);
  evhttp_set_max_headers_size(http_.get(), kMostBytes);
  evhttp_set_max_body_size(http_.get(), kMostBytes);
  evhttp_set_cb(http_.get(), "/metrics", Answer, this);
  thread_ = std::thread([this] {
    const auto end = [](evutil_socket_t, short, void* base) {
      event_base_loopbreak(static_cast<event_base*>(base));
    };
    event* const wake = event_new(base_.get(), wake_.get(), EV_READ, end, base_.get());
    event_add(wake, nullptr);
    event_base_dispatch(base_.get());
    event_free(wake);
  });
}

MetricsServer::~MetricsServer() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void MetricsServer::SetPage(std::string page) {
  const std::lock_guard lock(mutex_);
  page_ = std::move(page);
}

void MetricsServer::Answer(evhttp_request* request, void* self) {
  auto* server = static_cast<MetricsServer*>(self);
  evbuffer* const page = evhttp_request_get_output_buffer(request);
  {
    const std::lock_guard lock(server->mutex_);
    evbuffer_add(page, server->page_.data(), server->page_.size());
  }
  evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                    "text/plain; version=0.0.4; charset=utf-8");
  evhttp_send_reply(request, HTTP_OK, "OK", nullptr);
}

void MetricsServer::FreeBase(event_base* base) { event_base_free(base); }

void MetricsServer::FreeHttp(evhttp* http) { evhttp_free(http); }

}  // namespace lockstep
