// GpuDecoder: decodes many JPEG files at once on a GPU, with nvJPEG, and crops and resizes them to one size.
//
// Promise: the result for a file depends on its Job, the output's size, the GPU and the version of nvJPEG, and not on
// the other files. If nvJPEG cannot decode a file, the caller must decode this file in another way.
//
// Invariants:
//   1. Only one thread may use a decoder. Each decoder has its own CUDA stream. Cut() returns when the pixels are in
//      the host's memory, and the thread sleeps until then.
//   2. The decoder takes GPU memory from PyTorch's allocator, and keeps it until the decoder is destroyed. The memory
//      consists of at most 256 MiB for decoded pixels, the results, and the memory that nvJPEG needs for itself.
//
// Protocol: nvJPEG decodes whole files, including their Huffman codes. A kernel crops and resizes the images
// (data/images/resize_on_gpu.h), and one copy brings the results to the host. The code that uses the results treats
// them like pixels that a CPU core has decoded. Caching files, replacing bad samples and resuming a run are therefore
// the same as without a GPU. For an image of 224 x 224, the copies to the host and back transfer 300 KB over PCIe. The
// decoder's CUDA stream has a high priority, so that its kernels do not wait for training kernels.
//
// An H200 decodes 11,000 files a second (500 x 375 pixels in 62 KiB) for two threads, with 128 files at once for each
// thread. A file keeps the GPU busy for 80 us; a core takes 900 us to decode and resize it. A machine with an H200 and
// two cores trains ResNet-50 on 3,993 images a second, and decoding takes 16 % of the GPU's time. The same GPU trains
// on 4,743 images a second if 14 cores decode, and on 1,998 if two cores decode.
//
// The decoder does not use the JPEG engines of an H100 and similar GPUs. If the GPU does not train at the same time,
// these engines decode 24,000 files a second for two threads. But with these engines nvJPEG starts kernels for each
// file, on separate streams, and each of these kernels waits for the training kernels. With the engines, ResNet-50
// trained on 4,040 images a second, and the training waited for images 14 % of the time, because the engines were idle
// while training kernels of 400 us ran. The engines also noticed damage in only 2 of 550 damaged files. This decoder
// notices damage in 115 of these files, and libjpeg in 129.
//
// Some pixels differ from ImageDecoder's by a grey level (because of the inverse DCT). If ImageDecoder reduces an image
// while it decodes the image, more pixels differ.
//
// what can fail -> what the caller sees -> the test that shows it (tests/gpu/gpu_decoder_test.cc)
//   no GPU, no nvJPEG -> Unavailable() says why, the constructor throws Error (kUsage)
//     -> tests/images_test.py, test_bench_loader
//   damage that the decoder notices -> Cut() returns false for that file, and cuts the others
//     -> GpuDecoderTest.SurvivesMutations, ImagesOnGpu.NameTheFileThatCannotBeRead
//   damage that the decoder does not notice -> wrong pixels of that file, as with libjpeg
//     -> GpuDecoderTest.SurvivesMutations
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
  // The number of jobs that a caller should pass to Cut() at once.
  static constexpr int64_t kAtOnce = 128;
  // The greatest number of pixels of an image that Cut() may get. The caller must decode larger images with
  // ImageDecoder, which can reduce an image while it decodes the image.
  static constexpr int64_t kMostPixels = int64_t{1} << 25;

  // Returns the reason why `device` cannot decode, or an empty string if `device` can decode.
  static std::string Unavailable(at::Device device);

  // Throws Error (kUsage) if Unavailable() returns a reason.
  explicit GpuDecoder(at::Device device);
  ~GpuDecoder();
  GpuDecoder(const GpuDecoder&) = delete;
  GpuDecoder& operator=(const GpuDecoder&) = delete;

  at::Device device() const;

  struct Job {
    // A JPEG file for which ImageDecoder::IsPlainJpeg() is true; empty: the job is skipped.
    std::span<const std::byte> file;
    ImageSize size;  // the size of the file's image, at most kMostPixels
    Box box;         // a box inside the image
    bool mirror = false;
  };

  // Decodes the file of each job, and resizes the job's box to width x height RGB pixels (data/images/resize.h). The
  // pixels of job i begin at output + i * 3 * width * height, in the host's memory. Returns for each job whether it
  // succeeded. The pixels of a job that failed or was skipped are undefined. Throws Error (kBug) if nvJPEG gets no
  // memory on the GPU or cannot begin to decode, and c10::Error if PyTorch gets no memory there or a CUDA call fails.
  std::vector<bool> Cut(std::span<const Job> jobs, int64_t width, int64_t height, uint8_t* output);

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
