// For tests: writes tar archives, member by member.
#pragma once

#include <string>
#include <string_view>

#include "base/files/tar_writer.h"

namespace lockstep {

// Returns a member's header and its bytes, in whole blocks.
inline std::string TarMemberOf(std::string_view name, std::string_view bytes, char type = '0') {
  std::string member;
  AppendTarBlocks(name, type, bytes, member);
  return member;
}

// Returns the two blocks of zeros that end an archive.
inline std::string TarEnd() {
  std::string end;
  AppendTarEnd(end);
  return end;
}

}  // namespace lockstep
