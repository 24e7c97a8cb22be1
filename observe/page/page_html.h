// PageHtml(): returns the whole page as one HTML text: its layout (page.html), its style (page.css), its program (the
// files of script/, in the order of observe/page/BUILD) and the data.
//
// Promise: nothing in the data can end the HTML element that holds the data, or run as code. By its content security
// policy the page can send requests only to its own server. (observe/page/page_html_test.cc, tests/page_test.py)
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns the object as one line of JSON. Bytes that are not valid UTF-8 are replaced.
std::string JsonText(const nlohmann::ordered_json& data);

// Returns the page. `data` is the result of PageData::All().
std::string PageHtml(const nlohmann::ordered_json& data);

}  // namespace lockstep
