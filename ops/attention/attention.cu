#include <algorithm>

#include "base/ceil_divide.h"
#include "ops/attention/attention_kernel.h"
#include "ops/common/pack.cuh"

namespace lockstep::ops {
namespace {

// A thread block copies kUnits units of kRows rows. A row holds the values of one token in one of the three parts. A
// unit is 16 bytes, or one value if the tensors are not aligned.
constexpr int kUnits = 16;
constexpr int kRowThreads = 16;
constexpr int kRowsOfThread = 4;  // the number of rows whose loads a thread has in flight
constexpr int kRows = kRowThreads * kRowsOfThread;

struct Parts {
  HeadsView parts[3];  // with strides counted in units
};

// Copies the parts to `out`. Block (r, u, p) copies, for each row of group r, the units of group u in part p. The
// values are copied unchanged, so their type does not matter.
template <typename Unit>
__global__ void __launch_bounds__(kUnits* kRowThreads)
    PackHeads(const __grid_constant__ Parts parts, Unit* __restrict__ out, int64_t rows,
              int64_t tokens, int head_units, int part_units) {
  const int unit = static_cast<int>(blockIdx.y) * kUnits + static_cast<int>(threadIdx.x);
  if (unit >= part_units) return;
  const HeadsView& part = parts.parts[blockIdx.z];
  const Unit* in = static_cast<const Unit*>(part.data) + unit / head_units * part.head_stride +
                   unit % head_units;
  const int64_t first = blockIdx.x * int64_t{kRows} + threadIdx.y * kRowsOfThread;
  int64_t count = first / tokens;
  int64_t token = first % tokens;
  Unit held[kRowsOfThread];
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k) {
    if (first + k < rows) held[k] = in[count * part.count_stride + token * part.token_stride];
    if (++token == tokens) {
      token = 0;
      ++count;
    }
  }
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k) {
    if (first + k < rows) out[((first + k) * 3 + blockIdx.z) * part_units + unit] = held[k];
  }
}

// Returns whether every head begins at a multiple of 16 bytes. The stride of a dimension of size 1 does not matter.
bool IsPacked(const HeadsView& view, const AttentionShape& shape, int64_t unit_size) {
  return IsAligned(view.data) && (shape.count == 1 || view.count_stride % unit_size == 0) &&
         (shape.heads == 1 || view.head_stride % unit_size == 0) &&
         (shape.tokens == 1 || view.token_stride % unit_size == 0);
}

template <typename Unit>
void Launch(const std::array<HeadsView, 3>& views, void* out, const AttentionShape& shape,
            cudaStream_t stream) {
  constexpr int64_t kSize = sizeof(Unit) / sizeof(uint16_t);
  Parts parts;
  for (int p = 0; p < 3; ++p) {
    parts.parts[p] = {views[p].data, views[p].count_stride / kSize, views[p].head_stride / kSize,
                      views[p].token_stride / kSize};
  }
  const int64_t rows = shape.count * shape.tokens;
  const int64_t head_units = shape.size / kSize;
  const int64_t part_units = shape.heads * head_units;
  const dim3 blocks(static_cast<unsigned>(CeilDivide(rows, kRows)),
                    static_cast<unsigned>(CeilDivide(part_units, kUnits)), 3);
  PackHeads<Unit><<<blocks, dim3(kUnits, kRowThreads), 0, stream>>>(
      parts, static_cast<Unit*>(out), rows, shape.tokens, static_cast<int>(head_units),
      static_cast<int>(part_units));
}

}  // namespace

void LaunchPackHeads(const std::array<HeadsView, 3>& parts, void* out, const AttentionShape& shape,
                     cudaStream_t stream) {
  if (shape.count * shape.tokens * shape.heads * shape.size == 0) return;
  constexpr int64_t kSize = sizeof(uint4) / sizeof(uint16_t);
  const bool packed = shape.size % kSize == 0 && IsAligned(out) &&
                      std::all_of(parts.begin(), parts.end(), [&](const HeadsView& view) {
                        return IsPacked(view, shape, kSize);
                      });
  const auto launch = packed ? Launch<uint4> : Launch<uint16_t>;
  launch(parts, out, shape, stream);
}

}  // namespace lockstep::ops
