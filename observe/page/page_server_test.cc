#include "observe/page/page_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/http/testing/http_client.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

class PageServerTest : public testing::Test {
 protected:
  PageServerTest() {
    WriteFile(folder_ + "/log.jsonl", R"({"event":"step","time":5,"step":1,"loss":2.5})"
                                      "\n");
  }

  void Serve(const std::string& address) {
    server_ = std::make_unique<PageServer>(
        HttpServer::Options{.address = address, .port_name = "--port", .address_name = "--bind"},
        [&] { return std::make_unique<PageData>(std::vector<std::string>{folder_}, true); });
    const std::string& url = server_->url();
    port_ = std::stoi(url.substr(url.find(':', 7) + 1));
  }

  std::string folder_ = NewFolder();
  std::unique_ptr<PageServer> server_;
  int port_ = 0;
};

TEST_F(PageServerTest, ShowsThePage) {
  Serve("127.0.0.1");
  EXPECT_THAT(server_->url(), MatchesRegex("http://127.0.0.1:[0-9]+/"));
  EXPECT_THAT(HttpAnswer(port_, "/"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("text/html"),
                    HasSubstr("Cache-Control: no-store"), HasSubstr("2.5")));
  EXPECT_THAT(HttpAnswer(port_, "/data?since=-1"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("2.5")));
  EXPECT_THAT(HttpAnswer(port_, "/data?since=0"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\"runs\":[]")));
  EXPECT_THAT(HttpAnswer(port_, "/curves?axis=step&from=0&to=1.5"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("2.5")));
  EXPECT_THAT(HttpAnswer(port_, "/curves?axis=step&from=5&to=9"), Not(HasSubstr("2.5")));
}

TEST_F(PageServerTest, WantsATokenWhereOthersReachIt) {
  Serve("0.0.0.0");
  EXPECT_THAT(server_->url(), MatchesRegex("http://.+:[0-9]+/\\?token=[0-9a-f]{32}"));
  const std::string token = server_->url().substr(server_->url().find('?') + 1);
  const std::string wrong = "token=" + std::string(32, 'f');
  for (const std::string target : {"/", "/data", "/curves", "/other"}) {
    for (const std::string& query :
         {std::string(), "?" + wrong, std::string("?token="), "?" + token + "0"}) {
      EXPECT_THAT(HttpAnswer(port_, target + query),
                  AllOf(StartsWith("HTTP/1.1 401 "), Not(HasSubstr("2.5"))));
    }
  }
  EXPECT_THAT(HttpAnswer(port_, "/?" + token),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("2.5")));
  EXPECT_THAT(HttpAnswer(port_, "/data?since=-1&" + token), StartsWith("HTTP/1.1 200 "));
}

TEST_F(PageServerTest, RefusesWhatItDoesNotKnow) {
  Serve("127.0.0.1");
  EXPECT_THAT(HttpAnswer(port_, "/log.jsonl"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(HttpAnswer(port_, "/../../etc/passwd"), StartsWith("HTTP/1.1 404 "));
  for (const char* target :
       {"/data", "/data?since=", "/data?since=x", "/data?since=99999999999999999999", "/curves",
        "/curves?axis=step", "/curves?axis=loss&from=1&to=2", "/curves?axis=step&from=1&to=2x"}) {
    EXPECT_THAT(HttpAnswer(port_, target), StartsWith("HTTP/1.1 400 ")) << target;
  }
}

}  // namespace
}  // namespace lockstep
