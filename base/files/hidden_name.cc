#include "base/files/hidden_name.h"

#include <algorithm>
#include <array>

namespace lockstep {

bool IsHiddenName(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kSystemFolders{
      "__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"};
  return name.starts_with('.') || std::ranges::find(kSystemFolders, name) != kSystemFolders.end();
}

bool HasHiddenName(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name != "." && name != ".." && IsHiddenName(name)) return true;
    if (slash == path.npos) return false;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace lockstep
