// Goes through the rows of a matrix that a thread processes, with the loads of several rows in flight at once.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// The rows first, first + stride, first + 2 stride, ... that are below `end`.
struct StridedRows {
  int64_t first;
  int64_t stride;
  int64_t end;
};

// Calls load(row, u) and then visit(row, u) for each of the rows, in groups of kRows rows, where u is the index of a
// row in its group. All calls of load() for a group come before the first call of visit() for this group.
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
