// The format of llm.c's token files. The header has 256 numbers of 32 bits; the first three are the magic number, the
// version and the number of tokens. After the header come the tokens, with 16 bits each. All numbers are little-endian.
// llm.c's files for LLaMA 3 have another magic number, and tokens of 32 bits (llm.c, dev/data/data_common.py,
// HEADERS_INFO).
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

inline constexpr int32_t kTokenFileMagic = 20240520;
inline constexpr int32_t kTokenFileVersion = 1;
inline constexpr int32_t kWideTokenFileMagic = 20240801;
using TokenFileHeader = std::array<int32_t, 256>;

}  // namespace lockstep
