// The rows of a matrix that a thread goes through, with the loads of several under way at once.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// Every stride-th row from `first` on, up to `end`.
struct StridedRows {
  int64_t first;
  int64_t stride;
  int64_t end;
};

// Calls visit(row, u) for each of the rows. It processes kRows rows at a time, and first calls load(row, u) for all of
// them.
template <int kRows, typename LoadRow, typename Visit>
__device__ void ForEachRow(const StridedRows& rows, const LoadRow& load, const Visit& visit) {
  for (int64_t first = rows.first; first < rows.end; first += kRows * rows.stride) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (first + u * rows.stride < rows.end) load(first + u * rows.stride, u);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (first + u * rows.stride < rows.end) visit(first + u * rows.stride, u);
    }
  }
}

}  // namespace lockstep::ops
