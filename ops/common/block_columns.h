// BlockColumns: how the columns of a matrix, in units such as packs of channels, lie on blocks side by side: about
// evenly.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"

namespace lockstep::ops {

struct BlockColumns {
  int count;  // blocks side by side
  int units;  // of each, the last may have fewer

  // `most`: units that a block may have.
  static BlockColumns Of(int64_t units, int64_t most) {
    const int64_t count = CeilDivide(units, most);
    return {static_cast<int>(count), static_cast<int>(CeilDivide(units, count))};
  }
};

}  // namespace lockstep::ops
