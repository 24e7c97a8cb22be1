// PageServer: shows the page of runs on a port, and follows the runs while a browser looks at it.
//
//   GET /                                     the page with all data
//   GET /data?since=VERSION                   what has changed (PageData::Since())
//   GET /curves?axis=step|time&from=X&to=X    the curves between two places, as fine as there is
//
// If the address is not of this machine alone, each URL needs token=TOKEN, which url() contains.
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
  // Calls `make_data` for the first request, on the thread of the server. Throws Error (kUsage).
  PageServer(const HttpServer::Options& options,
             std::function<std::unique_ptr<PageData>()> make_data);

  // The address to open in a browser.
  const std::string& url() const { return url_; }

 private:
  HttpReply ReplyTo(const HttpRequest& request);

  std::function<std::unique_ptr<PageData>()> make_data_;
  std::unique_ptr<PageData> data_;
  std::string token_;  // empty: none is needed
  HttpServer server_;
  std::string url_;
};

}  // namespace lockstep
