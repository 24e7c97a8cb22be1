// llm.c's token files. A header has 256 32-bit numbers; the first three are the magic number, the version and the
// number of tokens. 16-bit tokens follow. All numbers are little-endian.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

inline constexpr int32_t kTokenFileMagic = 20240520;
inline constexpr int32_t kTokenFileVersion = 1;
using TokenFileHeader = std::array<int32_t, 256>;

}  // namespace lockstep
