// BlockColumns: divides the columns of a matrix about evenly among thread blocks that lie side by side. It counts the
// columns in units, such as packs of channels.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"

namespace lockstep::ops {

struct BlockColumns {
  int count;  // the number of blocks side by side
  int units;  // the number of units of a block; the last block may have fewer

  // `most` is the maximum number of units of a block.
  static BlockColumns Of(int64_t units, int64_t most) {
    const int64_t count = CeilDivide(units, most);
    return {static_cast<int>(count), static_cast<int>(CeilDivide(units, count))};
  }
};

}  // namespace lockstep::ops
