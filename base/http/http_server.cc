#include "base/http/http_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <list>
#include <optional>

#include "base/error.h"
#include "base/http/own_hosts.h"
#include "base/say.h"

namespace lockstep {
namespace {

constexpr size_t kMostHeadBytes = 8192;

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

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 421:
      return "Misdirected Request";
    case 501:
      return "Not Implemented";
    default:
      return "Internal Server Error";
  }
}

std::string TextOf(const HttpReply& reply, bool with_body) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
      reply.status, ReasonOf(reply.status), reply.type, reply.body.size());
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  if (with_body) text += reply.body;
  return text;
}

template <auto free>
struct Free {
  template <typename Object>
  void operator()(Object* object) const {
    free(object);
  }
};
using Base = std::unique_ptr<event_base, Free<event_base_free>>;
using Event = std::unique_ptr<event, Free<event_free>>;
using Stream = std::unique_ptr<bufferevent, Free<bufferevent_free>>;

void Schedule(const Event& timer, double seconds) {
  double whole = 0;
  const double rest = std::modf(seconds, &whole);
  const timeval time{.tv_sec = static_cast<time_t>(whole),
                     .tv_usec = static_cast<suseconds_t>(1e6 * rest)};
  event_add(timer.get(), &time);
}

}  // namespace

// Does the work of the thread. All methods but the constructor run on the thread.
class HttpServer::Loop {
 public:
  Loop(const Options& options, Handler handler, FileDescriptor listener, int wake)
      : options_(options),
        handler_(std::move(handler)),
        hosts_(IsLoopback(options.address)),
        listener_(std::move(listener)),
        base_(event_base_new()) {
    if (!base_) throw BugError("{}: libevent does not begin", options_.port_name);
    const auto end = [](evutil_socket_t, short, void* self) {
      event_base_loopbreak(static_cast<Loop*>(self)->base_.get());
    };
    const auto accept = [](evutil_socket_t, short, void* self) {
      static_cast<Loop*>(self)->AcceptSome();
    };
    const auto go_on = [](evutil_socket_t, short, void* self) {
      event_add(static_cast<Loop*>(self)->accept_.get(), nullptr);
    };
    wake_.reset(event_new(base_.get(), wake, EV_READ, end, this));
    accept_.reset(event_new(base_.get(), listener_.get(), EV_READ | EV_PERSIST, accept, this));
    pause_.reset(evtimer_new(base_.get(), go_on, this));
    event_add(wake_.get(), nullptr);
    event_add(accept_.get(), nullptr);
  }

  void Run() {
    // A client that has closed its connection must not end the process.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    event_base_dispatch(base_.get());
  }

 private:
  struct Connection {
    explicit Connection(Loop& of) : loop(of) {}

    Loop& loop;
    std::list<Connection>::iterator self{};
    Stream stream{};
    Event deadline{};
    bool is_answered = false;
  };

  // Accepts connections that wait. At most kAtOnce, so that the connections that are there get their turn.
  void AcceptSome() {
    constexpr int kAtOnce = 16;
    for (int i = 0; i < kAtOnce; ++i) {
      FileDescriptor client(
          accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (client.get() >= 0) {
        Begin(std::move(client));
        continue;
      }
      const bool is_short =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_short) WaitForDescriptors(errno);
      return;  // no connection waits, or the one that waited is gone
    }
  }

  // Gives the descriptors of connections that still send back to the process, and accepts none for a second.
  void WaitForDescriptors(int error) {
    TellOnce(
        fmt::format("a connection cannot be accepted ({}): others wait", std::strerror(error)));
    std::erase_if(connections_, [](const Connection& one) { return !one.is_answered; });
    event_del(accept_.get());
    Schedule(pause_, 1);
  }

  void Begin(FileDescriptor client) {
    if (static_cast<int>(connections_.size()) >= options_.limits.connections) {
      TellOnce(fmt::format("more than {} connections at a time: the oldest are closed",
                           options_.limits.connections));
      const auto oldest = std::ranges::find(connections_, false, &Connection::is_answered);
      connections_.erase(oldest == connections_.end() ? connections_.begin() : oldest);
    }
    Connection& one = connections_.emplace_back(*this);
    one.self = std::prev(connections_.end());
    const auto close = [](evutil_socket_t, short, void* of) { Close(of); };
    one.stream.reset(bufferevent_socket_new(base_.get(), client.get(), BEV_OPT_CLOSE_ON_FREE));
    if (one.stream) client.Release();
    one.deadline.reset(evtimer_new(base_.get(), close, &one));
    if (!one.stream || !one.deadline) {
      connections_.pop_back();
      return;
    }
    bufferevent_setcb(
        one.stream.get(), [](bufferevent*, void* of) { OnBytes(*static_cast<Connection*>(of)); },
        [](bufferevent*, void* of) { OnWritten(*static_cast<Connection*>(of)); },
        [](bufferevent*, short, void* of) { Close(of); }, &one);
    bufferevent_setwatermark(one.stream.get(), EV_READ, 0, kMostHeadBytes + 1);
    bufferevent_enable(one.stream.get(), EV_READ | EV_WRITE);
    Schedule(one.deadline, options_.limits.request_s);
  }

  static void Close(void* connection) {
    const Connection& one = *static_cast<Connection*>(connection);
    one.loop.connections_.erase(one.self);
  }

  static void OnBytes(Connection& one) {
    evbuffer* const input = bufferevent_get_input(one.stream.get());
    if (one.is_answered) {
      evbuffer_drain(input, evbuffer_get_length(input));
      return;
    }
    std::string text(evbuffer_get_length(input), '\0');
    evbuffer_copyout(input, text.data(), text.size());
    const size_t head = HeadLength(text);
    if ((head > 0 ? head : text.size()) > kMostHeadBytes) {
      Close(&one);
    } else if (head > 0) {
      evbuffer_drain(input, text.size());
      one.is_answered = true;
      Schedule(one.deadline, one.loop.options_.limits.reply_s);
      const std::string reply = one.loop.Answer(text.substr(0, head));
      bufferevent_write(one.stream.get(), reply.data(), reply.size());
    }
  }

  static void OnWritten(const Connection& one) {
    if (one.is_answered) shutdown(bufferevent_getfd(one.stream.get()), SHUT_WR);
  }

  // Returns the bytes of the reply to a request.
  std::string Answer(const std::string& head) const {
    const std::optional<HttpRequest> request = ParseRequest(head);
    if (!request) return TextOf({.status = 400, .body = "this is no request of HTTP/1.1\n"}, true);
    const bool is_head = request->method == "HEAD";
    return TextOf(ReplyTo(*request), !is_head);
  }

  HttpReply ReplyTo(const HttpRequest& request) const {
    if (request.method != "GET" && request.method != "HEAD") {
      return {.status = 501, .body = "only GET and HEAD are answered\n"};
    }
    if (!options_.any_host && !hosts_.Contains(request.host)) {
      return {.status = 421,
              .body = fmt::format("the host of the request is none of this machine's names: {}\n",
                                  hosts_.Text())};
    }
    try {
      return handler_(request);
    } catch (const std::exception& error) {
      return {.status = 500, .body = std::string(error.what()) + "\n"};
    }
  }

  void TellOnce(const std::string& what) {
    if (!std::exchange(has_told_, true)) Warn(fmt::format("{}: {}", options_.port_name, what));
  }

  const Options options_;
  const Handler handler_;
  const OwnHosts hosts_;
  FileDescriptor listener_;
  Base base_;
  Event wake_, accept_, pause_;
  std::list<Connection> connections_;  // the oldest first
  bool has_told_ = false;
};

HttpServer::HttpServer(const Options& options, Handler handler)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::string why;
  FileDescriptor listener = Listen(options, why);
  if (listener.get() < 0) {
    throw UsageError("{}: {}:{}: {}{}", options.port_name, options.address, options.port, why,
                     options.remark);
  }
  port_ = PortOf(listener);
  loop_ = std::make_unique<Loop>(options, std::move(handler), std::move(listener), wake_.get());
  thread_ = std::thread([this] { loop_->Run(); });
}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

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
