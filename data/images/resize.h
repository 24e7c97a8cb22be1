// Resizer: resizes a part of an image, as Pillow's Image.resize((width, height), BILINEAR, box=box) and torchvision's
// antialiased bilinear resize do.
//
// Promise: every output byte differs by at most 1 grey level from the rounded exact value; the bytes are the same with
// every instruction set; a constant image stays constant, and a whole image that is resized to its own size does not
// change. Only the 3 * width bytes of each row are read, and only the output is written.
//
// The value: output pixel i of an axis lies at centre = box begin + (i + 0.5) * scale, in source pixels, with scale =
// box size / output size. The value of the output pixel is a weighted mean of the source pixels. The weights are a
// triangle around the centre that falls to 0 at a distance of max(1, scale), and they sum to one. The triangle reaches
// beyond the box but not beyond the image. The vertical mean is computed first and rounded to 8 bits, as in Pillow, and
// then the horizontal mean of these results.
//
// The steps, for blocks of 64 output rows, in tiles that stay in the CPU's cache:
//   1. Vertical: an output row is the weighted sum of source rows, byte by byte.
//   2. The block is transposed, so that the 64 bytes of one column and one colour lie side by side.
//   3. Horizontal: an output column is the weighted sum of columns of the block, byte by byte. No byte leaves its SIMD
//      lane.
//   4. The block is transposed back into the output. To mirror the image, the filters of the columns are used in
//      reverse order.
//
// Arithmetic: all computation is in integers. A weight has 16 bits, and a product is truncated to 8.8 bits (fixed
// point). A sum of products has 16 bits. To centre the error, the sum starts with half of the greatest possible loss by
// truncation. Filters of 44 and more pixels have small weights. These weights are scaled up by 2^shift. Runs of 8
// products are summed in 16 bits, and the sums of the runs in 32 bits. For n weights with c = n / 2^shift, truncation
// changes the result of a pass by at most c / 512 grey levels, and rounding the weights changes it by at most c / 512,
// too. c is below 46, so in both passes together the errors are less than 0.36 levels. Rounding to 8 bits between the
// passes changes the result by at most 0.5 levels. The total is less than 1 level.
//
// what can fail -> what the caller sees -> the test that shows it
//   a box beyond the image, or a size below 1 -> undefined; callers check -> (none)
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace lockstep {

namespace resize_internal {

// The filters of one axis. Filter i is the sum of source[begin[i] + t] * weights[i * taps + t] over all t < taps.
struct Filters {
  std::vector<int32_t> begin;
  std::vector<int32_t> used;  // how many weights of each filter are used; the rest are 0
  // Each weight is stored twice, in the lower and in the upper 16 bits.
  std::vector<uint32_t> weights;
  int64_t taps = 0;
  // All filters together read the source pixels [first, last). The elements of `begin` are relative to `first`.
  int64_t first = 0;
  int64_t last = 0;
  int shift = 0;  // the weights of one filter sum to 2^(16 + shift)
};

// Uninitialised memory that begins at a cache line.
class Scratch {
 public:
  // Returns memory of at least `bytes` bytes. What the memory held before may be lost.
  uint8_t* Get(int64_t bytes);

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace resize_internal

// Each thread must have its own Resizer. The Resizer keeps filter tables and scratch memory, so it allocates nothing as
// long as the sizes do not change.
class Resizer {
 public:
  // Resizes the part `box` of `source` to width x height RGB pixels, and writes them to `output` in rows of 3 * width
  // bytes without gaps, with the three colours of a pixel side by side. With `mirror`, left and right are exchanged.
  // The box must lie inside the image, and its width and height must be greater than 0.
  void Resize(const ImageView& source, const Box& box, int64_t width, int64_t height, bool mirror,
              uint8_t* output);

 private:
  resize_internal::Filters columns_;
  resize_internal::Filters rows_;
  resize_internal::Scratch narrow_;      // a source narrower than a vector, padded
  resize_internal::Scratch small_;       // an output smaller than a block, padded
  resize_internal::Scratch strip_;       // 16 rows after the vertical pass
  resize_internal::Scratch transposed_;  // a block of rows from strip_, in column order
  resize_internal::Scratch sums_;        // a part of transposed_ after the horizontal pass
};

}  // namespace lockstep
