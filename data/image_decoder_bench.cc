// Images decoded a second, by one thread: bazel run -c opt //data:image_decoder_bench
//
// The image is made here: slopes with noise, 500 x 375, 4:2:0, some 62 KiB, as a photo of ImageNet.
// The limit is libjpeg's Huffman decoder, which crops and reductions do not spare but for the rows
// below a crop; Parse is that alone. bytes_per_second counts the files' bytes.

#include <benchmark/benchmark.h>
// jpeglib.h needs it before it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "data/image_decoder.h"

namespace lockstep {
namespace {

constexpr int64_t image_width = 500;
constexpr int64_t image_height = 375;
constexpr int64_t noise_levels = 27;  // makes the file as large as a photo

std::string WriteJpeg(bool progressive) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = image_width;
  info.image_height = image_height;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::mt19937_64 random(1);
  std::vector<uint8_t> row(image_width * 3);
  for (int64_t y = 0; y < image_height; ++y) {
    for (int64_t x = 0; x < image_width; ++x) {
      const auto noise = static_cast<int64_t>(random() % noise_levels);
      row[x * 3] = static_cast<uint8_t>(x * 200 / image_width + noise);
      row[x * 3 + 1] = static_cast<uint8_t>(y * 200 / image_height + noise);
      row[x * 3 + 2] = static_cast<uint8_t>((x + y) / 5 + noise);
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(memory), bytes);
  std::free(memory);
  return file;
}

// As torchvision's RandomResizedCrop draws them: 0.08 to 1 of the area, 3/4 to 4/3 wide.
std::vector<Box> RandomCrops() {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> area(0.08, 1), position(0, 1);
  std::uniform_real_distribution<double> log_ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  std::vector<Box> boxes(256);
  for (auto& box : boxes) {
    box = {(image_width - image_height) / 2.0, 0, image_height, image_height};
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double pixels = area(random) * image_width * image_height;
      const double ratio = std::exp(log_ratio(random));
      const double width = std::round(std::sqrt(pixels * ratio));
      const double height = std::round(std::sqrt(pixels / ratio));
      if (width > image_width || height > image_height) continue;
      box = {std::floor(position(random) * (image_width - width + 1)),
             std::floor(position(random) * (image_height - height + 1)), width, height};
      break;
    }
  }
  return boxes;
}

const Box all = {0, 0, image_width, image_height};

// Decodes `boxes` in turn for width x height, and looks whether the last one is where it should be.
void Run(benchmark::State& state, const std::vector<Box>& boxes, int64_t width, int64_t height,
         bool progressive = false) {
  const std::string file = WriteJpeg(progressive);
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
  const ImageView whole = whole_decoder.Decode(all, image_width, image_height).pixels;
  for (const Box& box : boxes) {
    decoder.Open(bytes);
    const auto part = decoder.Decode(box, width, height);
    if (part.box.width != box.width) continue;  // reduced
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

void BM_Whole(benchmark::State& state) { Run(state, {all}, image_width, image_height); }
BENCHMARK(BM_Whole);

void BM_WholeProgressive(benchmark::State& state) {
  Run(state, {all}, image_width, image_height, true);
}
BENCHMARK(BM_WholeProgressive);

void BM_RandomCropFor224(benchmark::State& state) { Run(state, RandomCrops(), 224, 224); }
BENCHMARK(BM_RandomCropFor224);

// Reduced by 2.
void BM_WholeFor160(benchmark::State& state) { Run(state, {all}, 160, 160); }
BENCHMARK(BM_WholeFor160);

// Reduced by 8.
void BM_WholeFor32(benchmark::State& state) { Run(state, {all}, 32, 32); }
BENCHMARK(BM_WholeFor32);

// A box in the last corner, all rows above which are parsed only.
void BM_Parse(benchmark::State& state) {
  Run(state, {{image_width - 16.0, image_height - 16.0, 16, 16}}, 16, 16);
}
BENCHMARK(BM_Parse);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
