// Resizer: resizes a part of an image, in the way of Pillow's Image.resize((width, height), BILINEAR, box=box) and of
// torchvision's antialiased bilinear resize.
//
// Promise: every output byte is within 1 grey level of the exact value, rounded; the bytes are the same with every
// instruction set; a constant image stays constant, and a whole image that is resized to its own size does not change.
// Only the 3 * width bytes of each row are read, and only the output is written.
//
// The value: output pixel i of an axis lies at centre = box begin + (i + 0.5) * scale, in source pixels, with scale =
// box size / output size. The value of the output pixel is a weighted mean of the source pixels. The weights are a
// triangle around the centre that falls to 0 at a distance of max(1, scale), and they sum to one. The triangle reaches
// beyond the box but not beyond the image. Rows and columns are independent: first the vertical mean, rounded to 8 bits
// as in Pillow, then the horizontal one.
//
// The steps, for blocks of 64 output rows, in tiles that stay in the CPU's cache:
//   1. Vertical: an output row is the weighted sum of source rows, byte by byte.
//   2. The block is transposed: the 64 bytes of a column and colour lie side by side.
//   3. Horizontal: the same weighted sum over columns; no byte leaves its SIMD lane.
//   4. The block is transposed back into the output. To mirror the image, the filters of the columns are used in
//      reverse order.
//
// Arithmetic: all computation is in integers. A weight has 16 bits, and a product is truncated to 8.8 bits (fixed
// point). A sum of products has 16 bits. It starts with half of the greatest possible loss by truncation. Filters of 44
// and more pixels have small weights. These weights are scaled up by 2^shift. Runs of 8 products are summed in 16 bits,
// and the sums of the runs in 32 bits. For n weights with c = n / 2^shift, truncation costs at most c / 512 grey levels
// in a pass, and so does rounding the weights. c stays below 46, so both passes together cost less than 0.36 levels.
// Rounding to 8 bits between the passes costs 0.5 levels. The total is less than 1 level.
//
// what can fail -> what the caller sees -> the test that shows it
//   a box beyond the image, or a size below 1 -> undefined; callers check -> (none)
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/image.h"

namespace lockstep {

namespace resize_internal {

// The filters of one axis. Filter i sums source[begin[i] + t] * weights[i * taps + t], t < taps.
struct Filters {
  std::vector<int32_t> begin;
  std::vector<int32_t> used;  // how many weights of each filter are used; the rest are 0
  // Each weight is stored twice, in the lower and in the upper 16 bits.
  std::vector<uint32_t> weights;
  int64_t taps = 0;
  // All filters together read the source pixels [first, last); begin is relative to first.
  int64_t first = 0;
  int64_t last = 0;
  int shift = 0;  // the weights of one filter sum to 2^(16 + shift)
};

// Uninitialised memory that begins at a cache line.
class Scratch {
 public:
  // Returns at least `bytes` bytes. Their former content is lost.
  uint8_t* Get(int64_t bytes);

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace resize_internal

// Each thread has its own Resizer. The Resizer keeps filter tables and scratch memory, so it allocates nothing as long
// as the sizes do not change.
class Resizer {
 public:
  // Resizes the part `box` of `source` to width x height RGB pixels at `output`: rows without gaps, interleaved, 3 *
  // width bytes for each row. With `mirror`, left and right are exchanged. The box must lie inside the image, and its
  // width and height must be greater than 0.
  void Resize(const ImageView& source, const Box& box, int64_t width, int64_t height, bool mirror,
              uint8_t* output);

 private:
  resize_internal::Filters columns_;
  resize_internal::Filters rows_;
  resize_internal::Scratch narrow_;      // a source narrower than a vector, padded
  resize_internal::Scratch small_;       // an output smaller than a block, padded
  resize_internal::Scratch strip_;       // 16 rows after the vertical pass
  resize_internal::Scratch transposed_;  // a block of these rows in column order
  resize_internal::Scratch sums_;        // this block after the horizontal pass
};

}  // namespace lockstep
