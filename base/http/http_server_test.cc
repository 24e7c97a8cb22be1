#include "base/http/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/host_name.h"
#include "base/http/http_request.h"
#include "base/http/own_hosts.h"
#include "base/http/testing/http_client.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

HttpServer::Options Anywhere() {
  return {.address = "127.0.0.1", .port_name = "--port", .address_name = "--bind"};
}

TEST(HttpServer, AnswersWithWhatTheHandlerReturns) {
  const HttpServer server(Anywhere(), [](const HttpRequest& request) -> HttpReply {
    if (request.path == "/fails") throw std::runtime_error("no room");
    if (request.path != "/a b") return {.status = 404, .body = "nothing here"};
    std::string body;
    for (const auto& [name, value] : request.values) body += name + "=" + value + ";";
    return {.type = "text/x-own", .body = body, .headers = {{"X-Own", "1"}}};
  });
  EXPECT_THAT(HttpAnswer(server.port(), "/a%20b?second=%3C%2F&first=1"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Type: text/x-own\r\n"),
                    HasSubstr("X-Own: 1\r\n"), EndsWith("\r\n\r\nfirst=1;second=</;")));
  EXPECT_THAT(HttpAnswer(server.port(), "/other"),
              AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("nothing here")));
  EXPECT_THAT(HttpAnswer(server.port(), "/fails"),
              AllOf(StartsWith("HTTP/1.1 500 "), EndsWith("no room\n")));
  EXPECT_THAT(
      HttpAnswer(server.port(), "/a%20b?first=1", "HEAD"),
      AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 8\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(HttpAnswer(server.port(), "/a%20b", "POST"), StartsWith("HTTP/1.1 501 "));
}

TEST(HttpServer, RefusesLongRequests) {
  bool is_called = false;
  {
    const HttpServer server(Anywhere(), [&](const HttpRequest&) {
      is_called = true;
      return HttpReply{};
    });
    EXPECT_THAT(HttpAnswer(server.port(), "/" + std::string(20'000, 'a')),
                Not(StartsWith("HTTP/1.1 200")));
  }
  EXPECT_FALSE(is_called);
}

HttpReply Fine(const HttpRequest&) { return {.body = "fine"}; }

TEST(HttpServer, AnswersBesideManyIdleConnections) {
  HttpServer::Options options = Anywhere();
  options.limits.connections = 4;
  const HttpServer server(options, Fine);
  testing::internal::CaptureStderr();
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(ConnectTo(server.port(), idle.emplace_back(NewSocket())));
  EXPECT_THAT(HttpAnswer(server.port(), "/"), EndsWith("fine"));
  // At most three of the forty have stayed open beside the last one.
  for (int i = 0; i < 37; ++i) EXPECT_EQ(ReadToEnd(idle[i]), "") << i;
  EXPECT_THAT(HttpAnswer(server.port(), "/"), EndsWith("fine"));
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "lockstep: warning: --port: more than 4 connections at a time: the oldest are closed\n");
}

TEST(HttpServer, ClosesConnectionsThatDrip) {
  HttpServer::Options options = Anywhere();
  options.limits.request_s = 0.1;
  const HttpServer server(options, Fine);
  for (const std::string text : {"", "G", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "}) {
    const FileDescriptor client = NewSocket();
    ASSERT_TRUE(ConnectTo(server.port(), client));
    (void)WriteAll(client.get(), text);
    pollfd closed{.fd = client.get(), .events = POLLIN};
    do {
      if (!text.empty()) (void)send(client.get(), "x", 1, MSG_NOSIGNAL);
    } while (poll(&closed, 1, /*timeout=*/5) == 0);
    EXPECT_EQ(ReadToEnd(client), "");
  }
  EXPECT_THAT(HttpAnswer(server.port(), "/"), EndsWith("fine"));
}

TEST(HttpServer, ClosesConnectionsThatDoNotReadTheReply) {
  HttpServer::Options options = Anywhere();
  options.limits.reply_s = 0.1;
  const HttpServer server(options, [](const HttpRequest&) -> HttpReply {
    return {.body = std::string(size_t{64} << 20, 'a')};
  });
  const FileDescriptor client = NewSocket();
  ASSERT_TRUE(ConnectTo(server.port(), client));
  (void)WriteAll(client.get(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  pollfd closed{.fd = client.get(), .events = POLLRDHUP};
  ASSERT_EQ(poll(&closed, 1, /*timeout=*/-1), 1);
  EXPECT_LT(ReadToEnd(client).size(), size_t{64} << 20);
}

TEST(HttpServer, WaitsForDescriptors) {
  const HttpServer server(Anywhere(), Fine);
  const FileDescriptor client = NewSocket();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  FileDescriptor told(ends[0]), tells(ends[1]);
  const FileDescriptor standard_error(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  dup2(tells.get(), STDERR_FILENO);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit fewer{.rlim_cur = 200, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &fewer);
  std::vector<FileDescriptor> taken;
  do {
    taken.emplace_back(fcntl(client.get(), F_DUPFD_CLOEXEC, 0));
  } while (taken.back().get() >= 0);

  ASSERT_TRUE(ConnectTo(server.port(), client));
  (void)WriteAll(client.get(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string line(200, '\0');
  line.resize(std::max<ssize_t>(0, read(told.get(), line.data(), line.size())));
  taken.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  dup2(standard_error.get(), STDERR_FILENO);
  EXPECT_EQ(line,
            "lockstep: warning: --port: a connection cannot be accepted (Too many open files): "
            "others wait\n");
  EXPECT_THAT(ReadToEnd(client), EndsWith("fine"));
}

TEST(HttpServer, AnswersToItsOwnNamesOnly) {
  HttpServer::Options options = Anywhere();
  const HttpServer server(options, Fine);
  for (const std::string& host :
       {std::string("localhost"), std::string("LOCALHOST:80"), std::string("localhost."),
        std::string("127.0.0.1:9500"), std::string("[::1]"), std::string("[::1]:1"), HostName()}) {
    EXPECT_THAT(HttpAnswer(server.port(), "/", "GET", host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const std::string& host :
       {std::string("evil.example"), std::string("localhost.evil.example"), std::string("10.0.0.1"),
        std::string("127.0.0.1.evil.example"), HostName() + ".evil.example", std::string(""),
        std::string("localhost@evil.example"), std::string("[::2]"), std::string("::1")}) {
    EXPECT_THAT(HttpAnswer(server.port(), "/", "GET", host), StartsWith("HTTP/1.1 421 ")) << host;
    EXPECT_THAT(HttpAnswer(server.port(), "/", "HEAD", host), Not(HasSubstr("fine"))) << host;
  }
  EXPECT_THAT(HttpAnswer(server.port(), "http://evil.example/"), StartsWith("HTTP/1.1 421 "));
  for (const char* head : {"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
                           "GET / HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n",
                           "GET /\r\nHost: localhost\r\n\r\n", "\r\n\r\n", "GET / HTTP/2\n\n"}) {
    EXPECT_THAT(HttpAnswerTo(server.port(), head), StartsWith("HTTP/1.1 400 ")) << head;
  }
  options.any_host = true;
  const HttpServer any(options, Fine);
  EXPECT_THAT(HttpAnswer(any.port(), "/", "GET", "evil.example"), EndsWith("fine"));
}

TEST(OwnHosts, TakesAddressesWhereOthersReachIt) {
  const OwnHosts hosts(/*is_loopback=*/false);
  for (const std::string& host : {std::string("localhost"), std::string("10.0.0.1"),
                                  std::string("[fe80::1]"), HostName(), HostName() + ".lan"}) {
    EXPECT_TRUE(hosts.Contains(host)) << host;
  }
  for (const std::string host : {"evil.example", "10.0.0.1.evil.example", "", "fe80::1", "[x]",
                                 "localhost.evil.example", ".evil.example", "127.0.0.1."}) {
    EXPECT_FALSE(hosts.Contains(host)) << host;
  }
}

TEST(HttpServer, NamesAPortThatIsTaken) {
  const HttpServer first(Anywhere(), [](const HttpRequest&) { return HttpReply{}; });
  HttpServer::Options options = Anywhere();
  options.port = first.port();
  EXPECT_THAT(
      MessageOf(ExitStatus::kUsage,
                [&] { HttpServer(options, [](const HttpRequest&) { return HttpReply{}; }); }),
      AllOf(StartsWith(fmt::format("--port: 127.0.0.1:{}: Address already in use", first.port())),
            EndsWith("set --port to another")));
}

TEST(HttpServer, NamesAnAddressThatIsNotThisMachines) {
  HttpServer::Options options = Anywhere();
  options.address = "192.0.2.1";  // an address for documentation (RFC 5737), which no machine has
  const auto listen = [&] { HttpServer(options, [](const HttpRequest&) { return HttpReply{}; }); };
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, listen), HasSubstr("set --bind to an address"));
  options.address = "no number";
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, listen),
              HasSubstr("--bind needs an address in numbers"));
}

TEST(HttpServer, KnowsWhatOnlyThisMachineReaches) {
  for (const char* address : {"127.0.0.1", "127.3.2.1", "::1"}) EXPECT_TRUE(IsLoopback(address));
  for (const char* address : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost", ""}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace lockstep
