// Measures how many images one thread decodes a second: bazel run -c opt //data/images:image_decoder_bench
//
// The benchmark makes the image itself: slopes with noise, 500 x 375 pixels, 4:2:0, some 62 KiB, which is like a photo
// of ImageNet. The limit is the speed of libjpeg's Huffman decoder, which must decode all rows down to the end of the
// crop, even if the decoder needs only some columns or reduces the image. BM_Parse measures the Huffman decoder alone.
// bytes_per_second counts the bytes of the JPEG file for each decode.

#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "data/images/crop.h"
#include "data/images/image_decoder.h"
#include "data/images/testing/write_jpeg.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = 500;
constexpr int64_t kHeight = 375;
constexpr int64_t kNoiseLevels = 27;  // with this noise, the file is as large as a photo

std::string WriteImage(bool progressive) {
  std::mt19937_64 random(1);
  int64_t noise = 0;  // the same for all channels of a pixel
  const auto source = [&](int64_t x, int64_t y, int channel) {
    if (channel == 0) noise = static_cast<int64_t>(random() % kNoiseLevels);
    const int64_t slope = channel == 0   ? x * 200 / kWidth
                          : channel == 1 ? y * 200 / kHeight
                                         : (x + y) / 5;
    return static_cast<uint8_t>(slope + noise);
  };
  // Both sampling factors are 2, which is 4:2:0.
  return WriteJpeg({.name = "photo", .h_sampling = 2, .v_sampling = 2, .progressive = progressive},
                   kWidth, kHeight, source, 90);
}

std::vector<Box> RandomCrops() {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 256; ++i) {
    SampleRandom random(2, 0, i);
    boxes.push_back(RandomCrop({kWidth, kHeight}, {}, random));
  }
  return boxes;
}

const Box kAll = {0, 0, kWidth, kHeight};

// Measures decodes of `boxes` in turn for an output of width x height. Then checks that the pixels of each box that was
// decoded at full resolution equal those of a decode of the whole image.
void Run(benchmark::State& state, const std::vector<Box>& boxes, int64_t width, int64_t height,
         bool progressive = false) {
  const std::string file = WriteImage(progressive);
  const auto bytes = std::as_bytes(std::span(file));
  ImageDecoder decoder;
  size_t next = 0;
  for (auto _ : state) {
    decoder.Open(bytes);
    benchmark::DoNotOptimize(decoder.Decode(boxes[next], width, height));
    next = (next + 1) % boxes.size();
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));

  ImageDecoder whole_decoder;
  whole_decoder.Open(bytes);
  const ImageView whole = whole_decoder.Decode(kAll, kWidth, kHeight).pixels;
  for (const Box& box : boxes) {
    decoder.Open(bytes);
    const auto part = decoder.Decode(box, width, height);
    if (part.box.width != box.width) continue;  // the decoder has reduced the image
    const auto x = static_cast<int64_t>(box.x), y = static_cast<int64_t>(box.y);
    const auto part_x = static_cast<int64_t>(part.box.x), part_y = static_cast<int64_t>(part.box.y);
    for (int64_t row = 0; row < static_cast<int64_t>(box.height); ++row) {
      if (std::memcmp(part.pixels.pixels + (part_y + row) * part.pixels.stride + part_x * 3,
                      whole.pixels + (y + row) * whole.stride + x * 3,
                      static_cast<size_t>(box.width) * 3) != 0) {
        state.SkipWithError("a part differs from the whole");
        return;
      }
    }
  }
}

void BM_Whole(benchmark::State& state) { Run(state, {kAll}, kWidth, kHeight); }
BENCHMARK(BM_Whole);

void BM_WholeProgressive(benchmark::State& state) { Run(state, {kAll}, kWidth, kHeight, true); }
BENCHMARK(BM_WholeProgressive);

void BM_RandomCropFor224(benchmark::State& state) { Run(state, RandomCrops(), 224, 224); }
BENCHMARK(BM_RandomCropFor224);

// Measures decodes of the whole image in which the decoder reduces the image by 2 on each side.
void BM_WholeFor160(benchmark::State& state) { Run(state, {kAll}, 160, 160); }
BENCHMARK(BM_WholeFor160);

// Measures decodes of the whole image in which the decoder reduces the image by 8 on each side.
void BM_WholeFor32(benchmark::State& state) { Run(state, {kAll}, 32, 32); }
BENCHMARK(BM_WholeFor32);

// Measures decodes of a box of 16 x 16 pixels in the lower right corner. libjpeg only parses the rows above the box, so
// nearly all of the time is that of the Huffman decoder.
void BM_Parse(benchmark::State& state) {
  Run(state, {{kWidth - 16.0, kHeight - 16.0, 16, 16}}, 16, 16);
}
BENCHMARK(BM_Parse);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
