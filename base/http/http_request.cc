#include "base/http/http_request.h"

#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "base/small_letters.h"

namespace lockstep {
namespace {

// Returns the text up to the first line end of `rest`, without the line end, and removes the line from `rest`.
std::string_view TakeLine(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view WithoutSpaces(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// Returns the host of a Host header, as HttpRequest::host.
std::string HostOf(std::string_view header) {
  const size_t colon = header.rfind(':');
  const bool has_port =
      colon != header.npos &&
      std::ranges::all_of(header.substr(colon + 1), [](unsigned char c) { return isdigit(c); });
  if (has_port) header = header.substr(0, colon);
  if (header.ends_with('.')) header.remove_suffix(1);  // a name may end in the dot of the root
  return InSmallLetters(header);
}

std::string Decoded(const char* text) {
  if (text == nullptr) return "";
  size_t bytes = 0;
  const std::unique_ptr<char, decltype(&std::free)> decoded(evhttp_uridecode(text, 0, &bytes),
                                                            std::free);
  return decoded == nullptr ? "" : std::string(decoded.get(), bytes);
}

}  // namespace

size_t HeadLength(std::string_view text) {
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n', end + 1)) {
    const std::string_view next = text.substr(end + 1);
    if (next.starts_with('\n')) return end + 2;
    if (next.starts_with("\r\n")) return end + 3;
  }
  return 0;
}

std::optional<HttpRequest> ParseRequest(std::string_view head) {
  const std::string_view first = TakeLine(head);
  const size_t target_at = first.find(' '), version_at = first.rfind(' ');
  if (target_at == first.npos || target_at == version_at) return std::nullopt;
  const std::string_view version = first.substr(version_at + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return std::nullopt;
  HttpRequest request{
      .method = std::string(first.substr(0, target_at)), .path = {}, .values = {}, .host = {}};
  int hosts = 0;
  while (!head.empty()) {
    const std::string_view line = TakeLine(head);
    const size_t colon = line.find(':');
    if (colon == line.npos || InSmallLetters(line.substr(0, colon)) != "host") continue;
    request.host = HostOf(WithoutSpaces(line.substr(colon + 1)));
    ++hosts;
  }
  if (hosts != 1) return std::nullopt;

  const std::string target(first.substr(target_at + 1, version_at - target_at - 1));
  const std::unique_ptr<evhttp_uri, decltype(&evhttp_uri_free)> uri(
      evhttp_uri_parse_with_flags(target.c_str(), EVHTTP_URI_NONCONFORMANT), evhttp_uri_free);
  if (uri == nullptr) return std::nullopt;
  // A target such as http://name/ is for proxies. Its name counts instead of that of the header.
  if (const char* host = evhttp_uri_get_host(uri.get())) request.host = HostOf(host);
  request.path = Decoded(evhttp_uri_get_path(uri.get()));
  const char* query = evhttp_uri_get_query(uri.get());
  evkeyvalq values{};
  if (query == nullptr || evhttp_parse_query_str(query, &values) != 0) return request;
  for (const evkeyval* value = values.tqh_first; value != nullptr; value = value->next.tqe_next) {
    request.values[value->key] = value->value;
  }
  evhttp_clear_headers(&values);
  return request;
}

}  // namespace lockstep
