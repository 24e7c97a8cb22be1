#include "observe/page/page_server.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "observe/page/page_html.h"
#include "observe/page/token.h"

namespace lockstep {
namespace {

std::string_view ValueOf(const HttpRequest& request, const std::string& name) {
  const auto found = request.values.find(name);
  return found == request.values.end() ? std::string_view() : found->second;
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

HttpReply Answer(int status, std::string type, std::string body) {
  // With these headers the browser stores nothing, and does not send the URL, which contains the token, to other
  // servers.
  return {.status = status,
          .type = std::move(type) + "; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

HttpReply Refuse(int status, std::string why) {
  return Answer(status, "text/plain", std::move(why) + "\n");
}

// Returns the options with which the server answers to any name if its handler wants a token.
HttpServer::Options WithHosts(HttpServer::Options options, const std::string& token) {
  options.any_host = !token.empty();
  return options;
}

std::string UrlOf(const HttpServer::Options& options, int port, const std::string& token) {
  std::string host = options.address;
  if (host == "0.0.0.0" || host == "::") host = HostName();
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}/{}{}", host, port, token.empty() ? "" : "?token=", token);
}

}  // namespace

PageServer::PageServer(const HttpServer::Options& options,
                       std::function<std::unique_ptr<PageData>()> make_data)
    : make_data_(std::move(make_data)),
      token_(IsLoopback(options.address) ? "" : NewToken()),
      server_(WithHosts(options, token_),
              [this](const HttpRequest& request) { return ReplyTo(request); }),
      url_(UrlOf(options, server_.port(), token_)) {}

HttpReply PageServer::ReplyTo(const HttpRequest& request) {
  if (!token_.empty() && !IsSameToken(ValueOf(request, "token"), token_)) {
    return Refuse(401, "this page needs the token of the URL that Lockstep has printed");
  }
  if (!data_) data_ = make_data_();
  if (request.path == "/") return Answer(200, "text/html", PageHtml(data_->All()));
  if (request.path == "/data") {
    const std::optional<int64_t> since = NumberOf<int64_t>(ValueOf(request, "since"));
    if (!since) return Refuse(400, "since must be the version of the data that are there");
    return Answer(200, "application/json", JsonText(data_->Since(*since)));
  }
  if (request.path == "/curves") {
    const std::string_view axis = ValueOf(request, "axis");
    const std::optional<double> from = NumberOf<double>(ValueOf(request, "from"));
    const std::optional<double> to = NumberOf<double>(ValueOf(request, "to"));
    if ((axis != "step" && axis != "time") || !from || !to) {
      return Refuse(400, "axis must be step or time, and from and to must be numbers");
    }
    return Answer(200, "application/json",
                  JsonText(data_->CurvesWithin(axis == "step" ? CurveAxis::kStep : CurveAxis::kTime,
                                               *from, *to)));
  }
  return Refuse(404, "there is nothing here: the page is at /");
}

}  // namespace lockstep
