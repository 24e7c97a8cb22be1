// HttpRequest: what an HTTP server needs of a request. ParseRequest() reads it from the bytes that a client sent.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct HttpRequest {
  std::string method;                         // "GET"
  std::string path;                           // "/metrics", decoded
  std::map<std::string, std::string> values;  // the query's keys and values, decoded
  // The name or address by which the client calls the server, in lower case and without the port: "localhost", "[::1]".
  std::string host;
};

// Returns how many bytes of `text` the head of a request takes, with the empty line at its end; 0 if the empty line has
// not come yet.
size_t HeadLength(std::string_view text);

// Returns the request whose head is `head`, or nothing if it is no request of HTTP/1.0 or HTTP/1.1 with one Host header.
std::optional<HttpRequest> ParseRequest(std::string_view head);

}  // namespace lockstep
