// GpuDecoder: many JPEG files at once, decoded and cut to one size on a GPU (nvJPEG).
//
// Promise: what becomes of a file depends on the file, the box, the GPU and the version of nvJPEG, not on the
// files beside it. Files that nvJPEG does not take are left to the caller.
//
// Invariants:
//   1. A decoder is used by one thread, on a stream of its own. Cut() returns when the pixels are in the
//      host's memory; the thread sleeps meanwhile.
//   2. Memory on the GPU is that of PyTorch's allocator, and only grows: 256 MiB of pixels at most, the
//      results, and what nvJPEG takes.
//
// Protocol: nvJPEG decodes whole files, Huffman codes included, a kernel cuts and resizes
// (data/images/resize_on_gpu.h), one copy brings the results to the host. From there they go their way as if a core
// had made them, so that caches, bad samples and resuming are the same; the way back and forth takes 300 KB
// of PCIe for an image of 224 x 224. The stream's priority is high: what trains must not keep these kernels
// waiting.
//
// An H200 decodes, of files of 500 x 375 pixels in 62 KiB, 11,000 a second of 128 at once for two threads,
// which a file keeps busy for 80 us (a core takes 900 us to decode and resize it). Beside ResNet-50, which
// it trains with 3,993 images a second from two cores, that is 16 % of its time: 4,743 are trained with
// where 14 cores decode, 1,998 where two do.
//
// Not used: the JPEG engines of an H100 and its like. Alone they decode 24,000 files a second for two
// threads. But nvJPEG adds kernels for each file, on streams of its own, and each of them waits for those
// that train: ResNet-50 came to 4,040 images a second with waits of 14 %, and beside kernels of 400 us they
// stood still. They also noticed damage in 2 of 550 damaged files, where this decoder does in 115 and libjpeg
// in 129.
//
// Pixels differ from ImageDecoder's by a grey level here and there (the inverse DCT), and where that one
// reduces before the resize.
//
// what can fail -> what the caller sees -> the test that shows it (tests/gpu/gpu_decoder_test.cc)
//   no GPU, no nvJPEG -> Unavailable() says why, the constructor throws Error (kUsage)
//     -> tests/images_test.py, test_bench_loader
//   damage that the decoder notices -> Cut() says so, and the others are cut
//     -> GpuDecoderTest.SurvivesMutations, ImagesOnGpu.NameTheFileThatCannotBeRead
//   damage that it does not notice -> other pixels of that file, as with libjpeg -> the same
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/image.h"

namespace lockstep {

class GpuDecoder {
 public:
  // Files that it is best given at once.
  static constexpr int64_t kAtOnce = 128;
  // Larger images are for ImageDecoder, which reduces them while it decodes.
  static constexpr int64_t kMostPixels = int64_t{1} << 25;

  // Why there is none on the GPU `device`; empty: there is.
  static std::string Unavailable(at::Device device);

  // Throws Error (kUsage) where it is unavailable.
  explicit GpuDecoder(at::Device device);
  ~GpuDecoder();
  GpuDecoder(const GpuDecoder&) = delete;
  GpuDecoder& operator=(const GpuDecoder&) = delete;

  at::Device device() const;

  struct Job {
    std::span<const std::byte> file;  // ImageDecoder::IsPlainJpeg(); empty: the job is left out
    ImageSize size;                   // its, of no more than kMostPixels
    Box box;                          // inside the image
    bool mirror = false;
  };

  // Resizes the box of each job to width x height RGB pixels (data/images/resize.h); the i-th lies at
  // output + i * 3 * width * height, in the host's memory. Returns for each whether it does; where not,
  // anything may lie there. Throws Error (kBug) where the GPU has no memory left.
  std::vector<bool> Cut(std::span<const Job> jobs, int64_t width, int64_t height, uint8_t* output);

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
