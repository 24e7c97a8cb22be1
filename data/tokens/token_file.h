// llm.c's token files: a header of 256 32-bit numbers, of which the first three are the magic, the version and
// the number of tokens; then 16-bit tokens. All little-endian.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

inline constexpr int32_t kTokenFileMagic = 20240520;
inline constexpr int32_t kTokenFileVersion = 1;
using TokenFileHeader = std::array<int32_t, 256>;

}  // namespace lockstep
