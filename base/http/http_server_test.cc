#include "base/http/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/http/testing/http_client.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
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
                testing::Not(StartsWith("HTTP/1.1 200")));
  }
  EXPECT_FALSE(is_called);
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
