#include "observe/page/page_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

using testing::HasSubstr;
using testing::Not;

// Returns the content that an HTML parser finds in the element with the data.
std::string DataIn(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script", at) - at);
}

TEST(PageHtml, HoldsTheData) {
  const Json data{{"runs", {{{"name", "a/b"}, {"step", 7}}}}, {"version", 1}};
  const std::string page = PageHtml(data);
  EXPECT_EQ(Json::parse(DataIn(page)), data);
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  for (const char* mark : {"/* page.css */", "/* script */", R"({"mark")"}) {
    EXPECT_THAT(page, Not(HasSubstr(mark)));
  }
}

TEST(PageHtml, LetsNothingOutOfTheData) {
  for (const std::string text :
       {"</script><script>alert(1)</script>", "<!--", "<SCRIPT", "]]>", "\"},\"x\":{\"",
        "\\u003c/script>", "/* page.css */", R"({"mark":"data"})"}) {
    const Json data{{"name", text}, {text, 1}};
    const std::string page = PageHtml(data);
    const std::string inside = DataIn(page);
    EXPECT_THAT(inside, Not(HasSubstr("<")));
    EXPECT_EQ(Json::parse(inside), data);
  }
}

TEST(PageHtml, ReplacesWhatIsNoText) {
  const std::string inside = DataIn(PageHtml({{"name",
                                               "a\xff"
                                               "b"}}));
  EXPECT_EQ(Json::parse(inside).at("name"),
            "a\xef\xbf\xbd"
            "b");
}

TEST(PageHtml, AsksNobodyElse) {
  const std::string page = PageHtml({});
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* address : {"http:", "https:", "//fonts", "@import", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(address))) << address;
  }
}

}  // namespace
}  // namespace lockstep
