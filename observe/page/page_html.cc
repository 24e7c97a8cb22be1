#include "observe/page/page_html.h"

#include <string_view>

#include "observe/page/page_files.h"

namespace lockstep {
namespace {

// Replaces `mark`, which must be in `page`, with `text`.
void Put(std::string_view mark, std::string_view text, std::string& page) {
  page.replace(page.find(mark), mark.size(), text);
}

// Returns `json` with each "<" escaped, so that an HTML parser finds no markup in it.
std::string WithoutMarkup(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string JsonText(const nlohmann::ordered_json& data) {
  return data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string PageHtml(const nlohmann::ordered_json& data) {
  std::string page(kPageHtml);
  Put("/* page.css */", kPageCss, page);
  Put("/* script */", kPageScript, page);
  // The data are inserted last, because they may contain the text of a mark, which a later Put() could replace.
  Put(R"({"mark":"data"})", WithoutMarkup(JsonText(data)), page);
  return page;
}

}  // namespace lockstep
