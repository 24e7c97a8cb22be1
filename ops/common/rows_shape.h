// The shape of a matrix that a kernel processes row by row.
#pragma once

#include <cstdint>

namespace lockstep::ops {

struct RowsShape {
  int64_t rows;
  int64_t width;
  int multiprocessors;  // the number of multiprocessors of the device
};

}  // namespace lockstep::ops
