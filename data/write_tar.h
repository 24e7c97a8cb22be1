// For tests: tar archives, written in memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

// A member's header and its bytes, in whole blocks. Names are cut at 100 bytes.
inline std::string TarMemberOf(std::string_view name, std::string_view bytes, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes.size()));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::string member = header + std::string(bytes);
  member.resize((member.size() + 511) / 512 * 512);
  return member;
}

// What an archive ends with.
inline std::string TarEnd() { return std::string(1024, '\0'); }

}  // namespace lockstep
