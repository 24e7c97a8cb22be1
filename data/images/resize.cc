#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/ceil_divide.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/images/resize.cc"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#ifndef LOCKSTEP_DATA_RESIZE_ONCE
#define LOCKSTEP_DATA_RESIZE_ONCE
namespace lockstep::resize_internal {

constexpr int64_t kVector = 64;      // the bytes of the longest vector that is used
constexpr int64_t kGroup = 16;       // rows that are transposed at once
constexpr int64_t kBlock = 64;       // rows in a block
constexpr int64_t kSmallBlock = 32;  // rows in a small block; 3 colours of a column fill a vector
constexpr int64_t kTileBytes = 512;  // bytes of a row in a tile of the vertical pass
constexpr int64_t kTilePixels = 64;  // pixels of a row in a tile of the horizontal pass
constexpr int64_t kLeastWidth = 6;   // pixels of the narrowest output (>= kGroup bytes)
constexpr int64_t kRun = 8;          // how many products are summed in 16 bits, with any shift

// The memory and the sizes for one call of the vector code.
struct Job {
  const uint8_t* source;  // the first byte that the filters read
  int64_t stride;
  int64_t row_bytes;  // the bytes of a source row that the filters read; >= kVector
  const Filters* columns;
  const Filters* rows;
  int64_t width;       // >= kLeastWidth
  int64_t height;      // >= kSmallBlock
  int64_t tile_bytes;  // the bytes of a row in a tile; a multiple of kVector
  uint8_t* strip;
  uint8_t* transposed;
  uint8_t* sums;
  uint8_t* output;
};

}  // namespace lockstep::resize_internal
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::resize_internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// Does the same as the vectorised Sum() below, one byte at a time.
template <int kTaps>
void Sum(const uint8_t* in, int64_t stride, const uint32_t* weights, int64_t taps, int shift,
         int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t sum = (128u << shift) + static_cast<uint32_t>(taps / 2);
    for (int64_t t = 0; t < taps; ++t) sum += in[t * stride + i] * (weights[t] >> 16) >> 8;
    out[i] = static_cast<uint8_t>(sum >> (8 + shift));
  }
}

void Transpose(const uint8_t* in, int64_t in_stride, int64_t n, uint8_t* out, int64_t out_stride) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t r = 0; r < kGroup; ++r) out[i * out_stride + r] = in[r * in_stride + i];
  }
}

#else

using Bytes = hn::CappedTag<uint8_t, kVector>;
using Words = hn::Repartition<uint16_t, Bytes>;
using Longs = hn::Repartition<uint32_t, Bytes>;

// Sets out[i] to the rounded sum over t < taps of in[t * stride + i] * w[t] / 2^16, for each i < n, where w[t] is the
// lower half of weights[t]. A vector of bytes is treated as a vector of 16-bit words. The upper and the lower bytes of
// the words are summed separately and joined at the end, so no byte leaves its lane. n is at least the length of a
// vector; the last vector may overlap the vector before it. kTaps is the number of taps if it is known at compile time,
// and otherwise 0; then `any_taps` is their number.
template <int kTaps>
HWY_INLINE void NarrowSum(const uint8_t* HWY_RESTRICT in, int64_t stride,
                          const uint32_t* HWY_RESTRICT weights, int64_t any_taps, int64_t n,
                          uint8_t* HWY_RESTRICT out) {
  const Bytes bytes;
  const Words words;
  const Longs longs;
  const int64_t step = static_cast<int64_t>(hn::Lanes(bytes));
  const int64_t taps = kTaps > 0 ? kTaps : any_taps;
  const auto upper = hn::Set(words, 0xFF00);
  const auto start = hn::Set(words, static_cast<uint16_t>(128 + taps / 2));
  for (int64_t i = 0;; i = std::min(i + step, n - step)) {
    auto high = start;
    auto low = start;
    HWY_UNROLL(4)
    for (int64_t t = 0; t < taps; ++t) {
      const auto pixels = hn::BitCast(words, hn::LoadU(bytes, in + t * stride + i));
      const auto weight = hn::BitCast(words, hn::Set(longs, weights[t]));
      high = hn::Add(high, hn::MulHigh(hn::And(pixels, upper), weight));
      low = hn::Add(low, hn::MulHigh(hn::ShiftLeft<8>(pixels), weight));
    }
    const auto both = hn::Or(hn::And(high, upper), hn::ShiftRight<8>(low));
    hn::StoreU(hn::BitCast(bytes, both), bytes, out + i);
    if (i == n - step) break;
  }
}

// Does the same as NarrowSum() for weights that are scaled up by 2^shift: sums runs of kRun products in 16 bits, and
// the sums of the runs in 32 bits.
HWY_INLINE void WideSum(const uint8_t* HWY_RESTRICT in, int64_t stride,
                        const uint32_t* HWY_RESTRICT weights, int64_t taps, int shift, int64_t n,
                        uint8_t* HWY_RESTRICT out) {
  const Bytes bytes;
  const Words words;
  const Longs longs;
  const int64_t step = static_cast<int64_t>(hn::Lanes(bytes));
  const auto upper = hn::Set(words, 0xFF00);
  const auto lower_word = hn::Set(longs, 0xFFFF);
  const auto start = hn::Set(longs, (128u << shift) + static_cast<uint32_t>(taps / 2));
  for (int64_t i = 0;; i = std::min(i + step, n - step)) {
    auto high_high = start;
    auto high_low = start;
    auto low_high = start;
    auto low_low = start;
    for (int64_t run = 0; run < taps; run += kRun) {
      auto high = hn::Zero(words);
      auto low = hn::Zero(words);
      for (int64_t t = run; t < std::min(run + kRun, taps); ++t) {
        const auto pixels = hn::BitCast(words, hn::LoadU(bytes, in + t * stride + i));
        const auto weight = hn::BitCast(words, hn::Set(longs, weights[t]));
        high = hn::Add(high, hn::MulHigh(hn::And(pixels, upper), weight));
        low = hn::Add(low, hn::MulHigh(hn::ShiftLeft<8>(pixels), weight));
      }
      high_high = hn::Add(high_high, hn::ShiftRight<16>(hn::BitCast(longs, high)));
      high_low = hn::Add(high_low, hn::And(hn::BitCast(longs, high), lower_word));
      low_high = hn::Add(low_high, hn::ShiftRight<16>(hn::BitCast(longs, low)));
      low_low = hn::Add(low_low, hn::And(hn::BitCast(longs, low), lower_word));
    }
    const auto byte = [&](auto sum) HWY_ATTR { return hn::ShiftRightSame(sum, 8 + shift); };
    const auto upper_word = hn::Or(hn::ShiftLeft<8>(byte(high_high)), byte(low_high));
    const auto both = hn::Or(hn::ShiftLeft<16>(upper_word),
                             hn::Or(hn::ShiftLeft<8>(byte(high_low)), byte(low_low)));
    hn::StoreU(hn::BitCast(bytes, both), bytes, out + i);
    if (i == n - step) break;
  }
}

template <int kTaps>
HWY_INLINE void Sum(const uint8_t* in, int64_t stride, const uint32_t* weights, int64_t taps,
                    int shift, int64_t n, uint8_t* out) {
  if (kTaps > 0 || shift == 0) {
    NarrowSum<kTaps>(in, stride, weights, taps, n, out);
  } else {
    WideSum(in, stride, weights, taps, shift, n, out);
  }
}

// Interleaves the bytes of the vectors i and i + 8, for i < 8. Four calls of Shuffle() transpose 16 x 16 bytes.
template <class D, class V>
HWY_INLINE void Shuffle(D d, V& v0, V& v1, V& v2, V& v3, V& v4, V& v5, V& v6, V& v7, V& v8, V& v9,
                        V& v10, V& v11, V& v12, V& v13, V& v14, V& v15) {
  const V u0 = hn::InterleaveLower(d, v0, v8);
  const V u1 = hn::InterleaveUpper(d, v0, v8);
  const V u2 = hn::InterleaveLower(d, v1, v9);
  const V u3 = hn::InterleaveUpper(d, v1, v9);
  const V u4 = hn::InterleaveLower(d, v2, v10);
  const V u5 = hn::InterleaveUpper(d, v2, v10);
  const V u6 = hn::InterleaveLower(d, v3, v11);
  const V u7 = hn::InterleaveUpper(d, v3, v11);
  const V u8 = hn::InterleaveLower(d, v4, v12);
  const V u9 = hn::InterleaveUpper(d, v4, v12);
  const V u10 = hn::InterleaveLower(d, v5, v13);
  const V u11 = hn::InterleaveUpper(d, v5, v13);
  const V u12 = hn::InterleaveLower(d, v6, v14);
  const V u13 = hn::InterleaveUpper(d, v6, v14);
  const V u14 = hn::InterleaveLower(d, v7, v15);
  const V u15 = hn::InterleaveUpper(d, v7, v15);
  v0 = u0, v1 = u1, v2 = u2, v3 = u3, v4 = u4, v5 = u5, v6 = u6, v7 = u7;
  v8 = u8, v9 = u9, v10 = u10, v11 = u11, v12 = u12, v13 = u13, v14 = u14, v15 = u15;
}

// Sets out[i * out_stride + r] to in[r * in_stride + i], for each r < 16 and each i below n rounded up to a multiple of
// 16. Longer vectors, stored in parts of 16 bytes, were no faster on an AVX-512 Xeon.
HWY_INLINE void Transpose(const uint8_t* HWY_RESTRICT in, int64_t in_stride, int64_t n,
                          uint8_t* HWY_RESTRICT out, int64_t out_stride) {
  const hn::FixedTag<uint8_t, kGroup> d;
  for (int64_t i = 0; i < n; i += kGroup) {
    const auto load = [&](int64_t r) HWY_ATTR { return hn::LoadU(d, in + r * in_stride + i); };
    auto v0 = load(0), v1 = load(1), v2 = load(2), v3 = load(3);
    auto v4 = load(4), v5 = load(5), v6 = load(6), v7 = load(7);
    auto v8 = load(8), v9 = load(9), v10 = load(10), v11 = load(11);
    auto v12 = load(12), v13 = load(13), v14 = load(14), v15 = load(15);
    Shuffle(d, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15);
    Shuffle(d, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15);
    Shuffle(d, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15);
    Shuffle(d, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15);
    const auto store = [&](int64_t r, auto v)
                           HWY_ATTR { hn::StoreU(v, d, out + (i + r) * out_stride); };
    store(0, v0), store(1, v1), store(2, v2), store(3, v3);
    store(4, v4), store(5, v5), store(6, v6), store(7, v7);
    store(8, v8), store(9, v9), store(10, v10), store(11, v11);
    store(12, v12), store(13, v13), store(14, v14), store(15, v15);
  }
}

#endif

// Does the vertical pass for the bytes [first_byte, first_byte + n) of output row y, and writes them to `out`.
HWY_INLINE void SumRows(const Job& job, int64_t y, int64_t first_byte, int64_t n, uint8_t* out) {
  const Filters& rows = *job.rows;
  const uint8_t* in = job.source + rows.begin[y] * job.stride + first_byte;
  const uint32_t* weights = rows.weights.data() + y * rows.taps;
  switch (rows.used[y]) {
    case 1:
      return Sum<1>(in, job.stride, weights, 1, 0, n, out);
    case 2:
      return Sum<2>(in, job.stride, weights, 2, 0, n, out);
    case 3:
      return Sum<3>(in, job.stride, weights, 3, 0, n, out);
    case 4:
      return Sum<4>(in, job.stride, weights, 4, 0, n, out);
    default:
      return Sum<0>(in, job.stride, weights, rows.used[y], rows.shift, n, out);
  }
}

// Does the horizontal pass for the pixels [first, first + n) of a block of kRows rows, and writes them to job.sums.
template <int kTaps, int64_t kRows>
HWY_INLINE void SumColumns(const Job& job, int64_t first, int64_t n) {
  const Filters& columns = *job.columns;
  constexpr int64_t pixel = 3 * kRows;
  for (int64_t x = first; x < first + n; ++x) {
    Sum<kTaps>(job.transposed + columns.begin[x] * pixel, pixel,
               columns.weights.data() + x * columns.taps, columns.taps, columns.shift, pixel,
               job.sums + (x - first) * pixel);
  }
}

// Makes the output rows [y, y + kRows). Each step works on one tile after the other, so that a tile is still in the L1
// cache when the next step reads it.
template <int64_t kRows>
HWY_INLINE void ResizeBlock(const Job& job, int64_t y) {
  for (int64_t i = 0; i < job.row_bytes; i += job.tile_bytes) {
    // The last tile must be at least as long as a vector, so it may overlap the tile before it.
    const int64_t begin = std::min(i, job.row_bytes - kVector);
    const int64_t n = std::min(job.tile_bytes, job.row_bytes - begin);
    for (int64_t group = 0; group < kRows; group += kGroup) {
      for (int64_t r = 0; r < kGroup; ++r) {
        SumRows(job, y + group + r, begin, n, job.strip + r * job.tile_bytes);
      }
      Transpose(job.strip, job.tile_bytes, n, job.transposed + begin * kRows + group, kRows);
    }
  }
  const int64_t out_stride = 3 * job.width;
  for (int64_t x = 0; x < job.width; x += kTilePixels) {
    const int64_t begin = std::min(x, job.width - kLeastWidth);
    const int64_t n = std::min(kTilePixels, job.width - begin);
    // The sum of a column often has few terms. If the number of terms is a compile-time constant, the loop over them
    // has no branch.
    switch (job.columns->taps) {
      case 1:
        SumColumns<1, kRows>(job, begin, n);
        break;
      case 2:
        SumColumns<2, kRows>(job, begin, n);
        break;
      case 3:
        SumColumns<3, kRows>(job, begin, n);
        break;
      case 4:
        SumColumns<4, kRows>(job, begin, n);
        break;
      default:
        SumColumns<0, kRows>(job, begin, n);
    }
    uint8_t* out = job.output + y * out_stride + 3 * begin;
    for (int64_t i = 0; i < 3 * n; i += kGroup) {
      const int64_t byte = std::min(i, 3 * n - kGroup);
      Transpose(job.sums + byte * kRows, kRows, kRows, out + byte, out_stride);
    }
  }
}

// Makes all output rows, block by block. The last block may overlap the block before it.
void Run(const Job& job) {
  for (int64_t y = 0; y < job.height;) {
    if (job.height - y >= kBlock) {
      ResizeBlock<kBlock>(job, y);
      y += kBlock;
    } else {
      ResizeBlock<kSmallBlock>(job, std::min(y, job.height - kSmallBlock));
      y += kSmallBlock;
    }
  }
}

}  // namespace lockstep::resize_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace resize_internal {
namespace {

HWY_EXPORT(Run);

// Makes the `count` filters of one axis, in reverse order if `reversed`, and then copies of the last filter up to
// `padded` filters. `size` is the size of the image along the axis.
void MakeFilters(int64_t size, double box_begin, double box_size, int64_t count, int64_t padded,
                 bool reversed, Filters& filters) {
  const double scale = box_size / static_cast<double>(count);
  const double support = std::max(1.0, scale);
  const double slope = 1 / support;
  // The largest weight is below 1.34 / support, because at most a quarter of the triangle's area lies outside the
  // image. (It is a quarter if one output pixel covers the whole image.) The sum of kRun such weights, times 2^shift,
  // is at most one.
  int shift = 0;
  while (shift < 15 && support >= 11 * (2 << shift)) ++shift;
  const double one = static_cast<double>(int64_t{1} << (16 + shift));
  const int64_t taps = std::min(size, static_cast<int64_t>(std::ceil(2 * support)));
  filters.taps = taps;
  filters.shift = shift;
  filters.begin.resize(padded);
  filters.used.resize(padded);
  filters.weights.resize(padded * taps);

  const auto centre = [&](int64_t i) { return box_begin + (static_cast<double>(i) + 0.5) * scale; };
  // Returns the first source pixel of the filter around `at`, such that all taps lie inside the image. Some weights at
  // the start or at the end of the filter may be 0.
  const auto begin_of = [&](double at) {
    const int64_t begin = static_cast<int64_t>(std::max(0.0, at - support + 0.5));
    return std::min(begin, size - taps);
  };
  filters.first = begin_of(centre(0));
  filters.last = begin_of(centre(count - 1)) + taps;

  for (int64_t i = 0; i < count; ++i) {
    const double at = centre(i);
    const int64_t begin = begin_of(at);
    const int64_t place = reversed ? count - 1 - i : i;
    uint32_t* weights = filters.weights.data() + place * taps;
    // The loop over the taps runs twice. The first loop computes `total`, the sum of the triangle's heights. In the
    // second loop, each weight is the difference of two successive rounded partial sums, so that all weights together
    // sum to `one`.
    const double offset = 0.5 - at + static_cast<double>(begin);
    const auto triangle = [&](int64_t t) {
      const double height = 1 - std::abs(static_cast<double>(t) + offset) * slope;
      return height + std::abs(height);  // twice the larger of height and 0, without a branch
    };
    double total = 0;
    for (int64_t t = 0; t < taps; ++t) total += triangle(t);
    const double unit = one / total;
    double partial = 0.5;
    int64_t before = 0;
    int64_t used = 1;
    for (int64_t t = 0; t < taps; ++t) {
      partial += triangle(t) * unit;
      const int64_t rounded = static_cast<int64_t>(partial);
      // A weight of 65536 does not fit into 16 bits; 65535 gives the same bytes.
      const int64_t weight = std::min<int64_t>(rounded - before, 65535);
      before = rounded;
      weights[t] = static_cast<uint32_t>(weight) * 0x10001u;
      used = weight != 0 ? t + 1 : used;
    }
    filters.begin[place] = static_cast<int32_t>(begin - filters.first);
    filters.used[place] = static_cast<int32_t>(used);
  }
  for (int64_t i = count; i < padded; ++i) {
    filters.begin[i] = filters.begin[count - 1];
    filters.used[i] = filters.used[count - 1];
    std::copy_n(filters.weights.data() + (count - 1) * taps, taps,
                filters.weights.data() + i * taps);
  }
}

}  // namespace

uint8_t* Scratch::Get(int64_t bytes) {
  const size_t needed = static_cast<size_t>(bytes) + kVector - 1;
  if (bytes_.size() < needed) bytes_.resize(needed);
  const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
  return bytes_.data() + (kVector - address % kVector) % kVector;
}

}  // namespace resize_internal

void Resizer::Resize(const ImageView& source, const Box& box, int64_t width, int64_t height,
                     bool mirror, uint8_t* output) {
  using namespace resize_internal;
  const int64_t padded_width = std::max(width, kLeastWidth);
  const int64_t padded_height = std::max(height, kSmallBlock);
  MakeFilters(source.width, box.x, box.width, width, padded_width, mirror, columns_);
  MakeFilters(source.height, box.y, box.height, height, padded_height, false, rows_);

  Job job;
  job.source = source.pixels + rows_.first * source.stride + 3 * columns_.first;
  job.stride = source.stride;
  job.row_bytes = 3 * (columns_.last - columns_.first);
  if (job.row_bytes < kVector) {
    const int64_t rows = rows_.last - rows_.first;
    uint8_t* copy = narrow_.Get(rows * kVector);
    for (int64_t y = 0; y < rows; ++y) {
      std::memcpy(copy + y * kVector, job.source + y * job.stride, job.row_bytes);
    }
    job.source = copy;
    job.stride = kVector;
    job.row_bytes = kVector;
  }
  job.columns = &columns_;
  job.rows = &rows_;
  job.width = padded_width;
  job.height = padded_height;
  // If many source rows make one output row, it is faster to process whole rows than tiles that fit into the cache.
  job.tile_bytes = rows_.taps <= 4 ? kTileBytes : RoundUp(job.row_bytes, kVector);
  job.strip = strip_.Get(kGroup * job.tile_bytes);
  job.transposed = transposed_.Get(kBlock * RoundUp(job.row_bytes, kVector));
  job.sums = sums_.Get(kBlock * 3 * kTilePixels);
  const bool direct = width == padded_width && height == padded_height;
  job.output = direct ? output : small_.Get(3 * padded_width * padded_height);
  HWY_DYNAMIC_DISPATCH(Run)(job);
  if (!direct) {
    for (int64_t y = 0; y < height; ++y) {
      std::memcpy(output + y * 3 * width, job.output + y * 3 * padded_width, 3 * width);
    }
  }
}

}  // namespace lockstep
#endif
