// BlockColumns: divides the columns of a matrix about evenly among thread blocks. The columns are counted in units,
// such as packs of channels.
#pragma once

#include <cstdint>

#include "base/ceil_divide.h"

namespace lockstep::ops {

struct BlockColumns {
  int count;  // the number of thread blocks
  int units;  // the number of units of a thread block; the last block may have fewer

  // Divides `units` among thread blocks of at most `most` units each. The number of blocks is as small as this limit
  // allows.
  static BlockColumns Of(int64_t units, int64_t most) {
    const int64_t count = CeilDivide(units, most);
    return {static_cast<int>(count), static_cast<int>(CeilDivide(units, count))};
  }
};

}  // namespace lockstep::ops
