#include "prepare/new/names.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/small_letters.h"

namespace lockstep {

bool IsNameOfIds(const std::string& name) {
  const std::string small = InSmallLetters(name);
  return small.empty() || small == "id" || small == "uuid" || small == "guid" || small == "index" ||
         small == "row" || small == "key" || small == "rownumber" || small == "row_number" ||
         small.starts_with("unnamed: ") || small.ends_with("_id") || small.ends_with(" id") ||
         small.ends_with("-id") || small.ends_with(".id") || name.ends_with("Id") ||
         (name.ends_with("ID") && name.size() > 2);
}

std::string NameOfFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::string name = fs::absolute(path).lexically_normal().string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return fs::path(name).filename().string();
}

std::string Count(int64_t number, const std::string& noun) {
  if (number == 1) return "1 " + noun;
  const bool hisses = noun.ends_with("s") || noun.ends_with("ch");
  return fmt::format("{} {}{}", number, noun, hisses ? "es" : "s");
}

}  // namespace lockstep
