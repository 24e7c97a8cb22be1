// The layout of a tar archive's blocks (POSIX pax(1), 'ustar interchange format'). tar_index.h and tar_writer.h use
// this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ceil_divide.h"

namespace lockstep {

inline constexpr int64_t kTarBlock = 512;

// The offset and the length of a field of a header, in bytes.
struct TarField {
  size_t at;
  size_t length;
};
inline constexpr TarField kTarName{0, 100}, kTarMode{100, 8}, kTarUser{108, 8}, kTarGroup{116, 8},
    kTarSize{124, 12}, kTarTime{136, 12}, kTarChecksum{148, 8}, kTarType{156, 1},
    kTarLink{157, 100}, kTarMagic{257, 6}, kTarVersion{263, 2}, kTarPrefix{345, 155};

// Returns how many bytes a member of `bytes` bytes takes in the archive, in whole blocks.
constexpr int64_t WholeTarBlocks(int64_t bytes) { return RoundUp(bytes, kTarBlock); }

}  // namespace lockstep
