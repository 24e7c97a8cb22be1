#include "base/http/http_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int kPatienceS = 5;
constexpr int kMostBytes = 8192;  // the maximum size of a request's headers, and of its body

// Returns a socket that listens on the address and port of `options`. If that fails, returns an empty descriptor, and
// sets `why` to the reason and the advice for the user.
FileDescriptor Listen(const HttpServer::Options& options, std::string& why) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (error != 0) {
    why = fmt::format("{}: {} needs an address in numbers", gai_strerror(error),
                      options.address_name);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> place(found, freeaddrinfo);
  FileDescriptor listener(socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Without this option, connections of a process that has ended would keep the port in use for a minute.
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener.get() >= 0 && bind(listener.get(), place->ai_addr, place->ai_addrlen) == 0 &&
      listen(listener.get(), SOMAXCONN) == 0) {
    return listener;
  }
  why = std::strerror(errno);
  if (errno == EADDRINUSE) {
    why += fmt::format(": end what has the port, or set {} to another", options.port_name);
  } else if (errno == EADDRNOTAVAIL) {
    why +=
        fmt::format(": set {} to an address of this machine, or to 0.0.0.0", options.address_name);
  } else if (errno == EACCES) {
    why += fmt::format(": set {} to a port above 1023", options.port_name);
  }
  return {};
}

// Returns the port on which `listener` listens. If the options' port is 0, the system has chosen the port.
int PortOf(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string Decoded(const char* text) {
  if (text == nullptr) return "";
  size_t bytes = 0;
  const std::unique_ptr<char, decltype(&std::free)> decoded(evhttp_uridecode(text, 0, &bytes),
                                                            std::free);
  return decoded == nullptr ? "" : std::string(decoded.get(), bytes);
}

HttpRequest RequestOf(evhttp_request* request) {
  HttpRequest asked;
  const evhttp_uri* uri = evhttp_request_get_evhttp_uri(request);
  if (uri == nullptr) return asked;
  asked.path = Decoded(evhttp_uri_get_path(uri));
  const char* query = evhttp_uri_get_query(uri);
  evkeyvalq values{};
  if (query == nullptr || evhttp_parse_query_str(query, &values) != 0) return asked;
  for (const evkeyval* value = values.tqh_first; value != nullptr; value = value->next.tqe_next) {
    asked.values[value->key] = value->value;
  }
  evhttp_clear_headers(&values);
  return asked;
}

}  // namespace

HttpServer::HttpServer(const Options& options, Handler handler)
    : handler_(std::move(handler)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::string why;
  FileDescriptor listener = Listen(options, why);
  if (listener.get() < 0) {
    throw UsageError("{}: {}:{}: {}{}", options.port_name, options.address, options.port, why,
                     options.remark);
  }
  port_ = PortOf(listener);
  base_.reset(event_base_new());
  http_.reset(base_ ? evhttp_new(base_.get()) : nullptr);
  const bool listens = http_ && evhttp_accept_socket(http_.get(), listener.get()) == 0;
  if (!listens) throw BugError("{}: libevent does not begin", options.port_name);
  listener.Release();
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  evhttp_set_timeout(http_.get(), kPatienceS);
  evhttp_set_max_headers_size(http_.get(), kMostBytes);
  evhttp_set_max_body_size(http_.get(), kMostBytes);
  evhttp_set_gencb(http_.get(), Answer, this);
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

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void HttpServer::Answer(evhttp_request* request, void* self) {
  HttpReply reply;
  try {
    reply = static_cast<HttpServer*>(self)->handler_(RequestOf(request));
  } catch (const std::exception& error) {
    reply = {.status = HTTP_INTERNAL, .body = std::string(error.what()) + "\n"};
  }
  evkeyvalq* const headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Content-Type", reply.type.c_str());
  for (const auto& [name, value] : reply.headers) {
    evhttp_add_header(headers, name.c_str(), value.c_str());
  }
  if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
    evhttp_add_header(headers, "Content-Length", std::to_string(reply.body.size()).c_str());
    reply.body.clear();
  }
  evbuffer_add(evhttp_request_get_output_buffer(request), reply.body.data(), reply.body.size());
  evhttp_send_reply(request, reply.status, nullptr, nullptr);
}

void HttpServer::FreeBase(event_base* base) { event_base_free(base); }

void HttpServer::FreeHttp(evhttp* http) { evhttp_free(http); }

bool IsLoopback(const std::string& address) {
  constexpr uint32_t kLoopbackNet = 127;
  constexpr int kNetBits = 24;
  in_addr four{};
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) {
    return ntohl(four.s_addr) >> kNetBits == kLoopbackNet;
  }
  in6_addr six{};
  return inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace lockstep
