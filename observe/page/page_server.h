// PageServer: serves the page of runs on a port, and updates it while a browser shows it.
//
//   GET /                                     the page with all data
//   GET /data?since=VERSION                   what has changed (PageData::Since())
//   GET /curves?axis=step|time&from=X&to=X    the curves between two x, with finer columns
//
// If other machines can reach the address, each URL needs token=TOKEN, which url() contains.
//
// what can fail -> what the caller sees -> the test that shows it
//   the port is taken or not allowed, or the address is not this machine's -> Error (kUsage) from the constructor
//     (base/http/http_server.h) -> tests/page_test.py, test_a_port_that_is_taken
//   a wrong token, or none -> status 401 -> PageServerTest.WantsATokenWhereOthersReachIt (page_server_test.cc)
//   a path or value that is none of the above -> status 404 or 400 -> PageServerTest.RefusesWhatItDoesNotKnow
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/http/http_server.h"
#include "observe/page/page_data.h"

namespace lockstep {

class PageServer {
 public:
  // Opens the port. The server's thread calls `make_data` at the first request. Throws Error (kUsage) if the port
  // cannot be opened.
  PageServer(const HttpServer::Options& options,
             std::function<std::unique_ptr<PageData>()> make_data);

  // Returns the URL to open in a browser.
  const std::string& url() const { return url_; }

 private:
  HttpReply ReplyTo(const HttpRequest& request);

  std::function<std::unique_ptr<PageData>()> make_data_;
  std::unique_ptr<PageData> data_;
  std::string token_;  // empty: requests need no token
  HttpServer server_;
  std::string url_;
};

}  // namespace lockstep
