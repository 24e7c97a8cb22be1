// PageHtml(): the whole page as one HTML text: its layout, style and program (page.html, page.css and the files of
// script/, which the program contains in the order of observe/page/BUILD), and the data.
//
// Promise: nothing in the data can end the element that holds it, or run. The page forbids itself all requests but
// those to its own server. (observe/page/page_html_test.cc, tests/page_test.py)
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns the object as one line of text, with text that is not UTF-8 replaced.
std::string JsonText(const nlohmann::ordered_json& data);

// `data`: PageData::All().
std::string PageHtml(const nlohmann::ordered_json& data);

}  // namespace lockstep
