// Tests that the GPU decoder gives the same images as the CPU decoder, up to a few of the 256 levels of a channel, and
// that an image does not depend on the other files in its batch.

#include "data/images/gpu_decoder.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/images/image_dataset.h"
#include "data/images/image_decoder.h"
#include "data/images/resize.h"
#include "data/images/resize_on_gpu.h"
#include "data/images/testing/write_jpeg.h"

namespace lockstep {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  }
};

using Pixels = std::vector<uint8_t>;

struct Difference {
  int largest = 0;
  double mean = 0;
};

Difference Between(const Pixels& a, const Pixels& b) {
  EXPECT_EQ(a.size(), b.size());
  Difference difference;
  for (size_t i = 0; i < a.size(); ++i) {
    const int levels = std::abs(a[i] - b[i]);
    difference.largest = std::max(difference.largest, levels);
    difference.mean += levels / static_cast<double>(a.size());
  }
  return difference;
}

// ----- LaunchResize() -----

Pixels ResizedOnGpu(const ImageView& image, const Box& box, int64_t width, int64_t height,
                    bool mirror) {
  const at::TensorOptions on_gpu = at::TensorOptions(kGpu).dtype(at::kByte);
  const int64_t bytes = image.stride * image.height;
  const at::Tensor source =
      at::from_blob(const_cast<uint8_t*>(image.pixels), {bytes}, at::kByte).to(kGpu);
  GpuResize job{.source = image, .box = box, .mirror = mirror};
  job.source.pixels = source.const_data_ptr<uint8_t>();
  // The first job has no pixels, so LaunchResize() must not write to the output of the first job.
  std::vector<GpuResize> jobs{{}, job};
  const at::Tensor list =
      at::from_blob(jobs.data(), {static_cast<int64_t>(jobs.size() * sizeof(job))}, at::kByte)
          .to(kGpu);
  at::Tensor output = at::full({2, height * width * 3}, 77, on_gpu);
  LaunchResize(reinterpret_cast<const GpuResize*>(list.const_data_ptr<uint8_t>()), 2, width, height,
               output.mutable_data_ptr<uint8_t>(), at::cuda::getCurrentCUDAStream());
  EXPECT_TRUE(output[0].eq(77).all().item<bool>());
  const at::Tensor host = output[1].cpu();
  const auto* first = host.const_data_ptr<uint8_t>();
  return {first, first + host.numel()};
}

using ResizeOnGpu = OnGpu;

TEST_F(ResizeOnGpu, IsTheCpusWithinAGreyLevel) {
  std::mt19937 random(1);
  constexpr struct {
    int64_t width, height;
    Box box;
    int64_t to_width, to_height;
  } cases[] = {{500, 375, {0, 0, 500, 375}, 224, 224},
               {500, 375, {17.3, 40.9, 300.5, 211.1}, 224, 224},
               {500, 375, {480.2, 360.4, 15.5, 12.25}, 224, 224},
               {64, 48, {0, 0, 64, 48}, 64, 48},
               {1, 1, {0, 0, 1, 1}, 5, 3},
               {3, 700, {0.5, 1.5, 2, 690}, 33, 7},
               {1999, 1501, {3, 5, 1990, 1490}, 32, 31},
               {4000, 20, {0, 0, 4000, 20}, 1, 1}};
  for (const auto& [width, height, box, to_width, to_height] : cases) {
    for (const bool mirror : {false, true}) {
      SCOPED_TRACE(fmt::format("{} x {} to {} x {}", width, height, to_width, to_height));
      Pixels memory(3 * width * height);
      for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random() >> 8);
      const ImageView image{memory.data(), width, height, 3 * width};
      Pixels expected(3 * to_width * to_height);
      Resizer().Resize(image, box, to_width, to_height, mirror, expected.data());
      EXPECT_LE(Between(ResizedOnGpu(image, box, to_width, to_height, mirror), expected).largest,
                1);
    }
  }
}

// ----- GpuDecoder -----

// Returns the value of a channel, at pixel (x, y), of an image of two sine waves: a slow wave with a period of 126
// pixels along x, and a quick wave with a period of about 4 pixels.
uint8_t Waves(int64_t x, int64_t y, int channel) {
  const double slow = std::sin(0.05 * static_cast<double>(x + y * (channel + 1)));
  const double quick = std::sin(1.5 * static_cast<double>(x - y));
  return static_cast<uint8_t>(128 + 90 * slow + 20 * quick);
}

const JpegKind kPlainKinds[] = {
    {"4:4:4"},
    {"4:2:2", 3, 2, 1},
    {"4:4:0", 3, 1, 2},
    {"4:2:0", 3, 2, 2},
    {"restart markers 4:2:0", 3, 2, 2, false, 7},
};

std::string Jpeg(const JpegKind& kind, int64_t width, int64_t height) {
  return WriteJpeg(kind, width, height, Waves, /*quality=*/90);
}

std::span<const std::byte> Bytes(const std::string& file) { return std::as_bytes(std::span(file)); }

GpuDecoder::Job JobOf(const std::string& file, bool mirror = false) {
  ImageDecoder decoder;
  const ImageSize size = decoder.Open(Bytes(file));
  EXPECT_TRUE(decoder.IsPlainJpeg());
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  return {.file = Bytes(file),
          .size = size,
          .box = {0.1 * width, 0.2 * height, 0.7 * width, 0.75 * height},
          .mirror = mirror};
}

constexpr int64_t kSide = 112;
constexpr int64_t kBytes = 3 * kSide * kSide;

Pixels CutOnCpu(const GpuDecoder::Job& job) {
  ImageDecoder decoder;
  decoder.Open(job.file);
  const Box all = {0, 0, static_cast<double>(job.size.width), static_cast<double>(job.size.height)};
  // Decode() gets the full size, so that it does not downscale the image while decoding.
  const ImageView image = decoder.Decode(all, job.size.width, job.size.height).pixels;
  Pixels cut(kBytes);
  Resizer().Resize(image, job.box, kSide, kSide, job.mirror, cut.data());
  return cut;
}

bool CanBeCutOnCpu(const GpuDecoder::Job& job) {
  try {
    CutOnCpu(job);
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Cut {
  std::vector<bool> is_cut;
  std::vector<Pixels> pixels;
};

Cut CutOf(GpuDecoder& decoder, const std::vector<GpuDecoder::Job>& jobs) {
  Pixels all(kBytes * jobs.size());
  Cut cut{.is_cut = decoder.Cut(jobs, kSide, kSide, all.data()), .pixels = {}};
  for (size_t i = 0; i < jobs.size(); ++i) {
    cut.pixels.emplace_back(all.begin() + i * kBytes, all.begin() + (i + 1) * kBytes);
  }
  return cut;
}

using GpuDecoderTest = OnGpu;

TEST_F(GpuDecoderTest, CutsWhatTheCpuCuts) {
  GpuDecoder decoder(kGpu);
  for (const JpegKind& kind : kPlainKinds) {
    std::vector<std::string> files;
    for (const auto& [width, height] : {std::pair{500, 375}, {375, 500}, {113, 97}, {2000, 1333}}) {
      files.push_back(Jpeg(kind, width, height));
    }
    std::vector<GpuDecoder::Job> jobs;
    for (const std::string& file : files) jobs.push_back(JobOf(file, jobs.size() % 2 == 1));
    const Cut cut = CutOf(decoder, jobs);
    for (size_t i = 0; i < jobs.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} {} x {}", kind.name, jobs[i].size.width, jobs[i].size.height));
      ASSERT_TRUE(cut.is_cut[i]);
      const Difference difference = Between(cut.pixels[i], CutOnCpu(jobs[i]));
      EXPECT_LT(difference.mean, 0.5);
      EXPECT_LE(difference.largest, 4);
    }
  }
}

TEST_F(GpuDecoderTest, AFilesPixelsAreTheSameBesideAnyOthers) {
  std::vector<std::string> files;
  for (int i = 0; i < 70; ++i) files.push_back(Jpeg(kPlainKinds[i % 5], 200 + 3 * i, 300 - 2 * i));
  std::vector<GpuDecoder::Job> jobs;
  for (const std::string& file : files) jobs.push_back(JobOf(file));
  GpuDecoder decoder(kGpu);
  const Cut together = CutOf(decoder, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(together.is_cut[i]);
    EXPECT_TRUE(CutOf(decoder, {jobs[i]}).pixels[0] == together.pixels[i]);
  }
  jobs[3] = jobs[60] = {};
  const Cut without = CutOf(decoder, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(without.is_cut[i], i != 3 && i != 60);
    EXPECT_TRUE(!without.is_cut[i] || without.pixels[i] == together.pixels[i]);
  }
}

TEST_F(GpuDecoderTest, TakesMoreThanItDecodesAtOnce) {
  const std::string large = Jpeg(kPlainKinds[3], 6000, 5000),
                    small = Jpeg(kPlainKinds[0], 300, 200);
  const std::vector<GpuDecoder::Job> jobs{JobOf(large), JobOf(small), JobOf(large),
                                          JobOf(large), JobOf(small), JobOf(large)};
  GpuDecoder decoder(kGpu);
  const Cut cut = CutOf(decoder, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(cut.is_cut[i]);
    EXPECT_LT(Between(cut.pixels[i], CutOnCpu(jobs[i])).mean, 0.5) << i;
  }
}

// Checks that a damaged file does not change the results of the other files in its batch, and that the GPU decoder
// refuses more than half as many damaged files as the CPU decoder.
TEST_F(GpuDecoderTest, SurvivesMutations) {
  std::vector<std::string> good;
  for (int i = 0; i < 16; ++i) good.push_back(Jpeg(kPlainKinds[i % 5], 300 + i, 200 + i));
  GpuDecoder decoder(kGpu);
  std::vector<GpuDecoder::Job> jobs;
  for (const std::string& file : good) jobs.push_back(JobOf(file));
  const Cut expected = CutOf(decoder, jobs);
  std::mt19937 random(5);
  int refused = 0, refused_by_cpu = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> files = good;
    std::vector<bool> bad(files.size());
    for (int i = 0; i < 3; ++i) {
      const size_t which = random() % files.size();
      std::string& file = files[which];
      // In even rounds the damage may be anywhere after the first two bytes, including the JPEG file's tables. In odd
      // rounds the damage is in the second half of the file, which is entropy-coded data.
      const size_t begin = round % 2 == 0 ? 2 : file.size() / 2;
      for (unsigned n = 1 + random() % 20; n > 0; --n) {
        file[begin + random() % (file.size() - 2 - begin)] = static_cast<char>(random());
      }
      bad[which] = true;
    }
    for (size_t i = 0; i < files.size(); ++i) {
      jobs[i] = {};
      ImageDecoder header;
      try {
        header.Open(Bytes(files[i]));
      } catch (const Error&) {
        continue;
      }
      if (header.IsPlainJpeg()) jobs[i] = JobOf(files[i]);
      if (jobs[i].size.width * jobs[i].size.height > GpuDecoder::kMostPixels) jobs[i] = {};
    }
    const Cut cut = CutOf(decoder, jobs);
    for (size_t i = 0; i < files.size(); ++i) {
      if (bad[i]) {
        if (jobs[i].file.empty()) continue;
        refused += cut.is_cut[i] ? 0 : 1;
        refused_by_cpu += CanBeCutOnCpu(jobs[i]) ? 0 : 1;
        continue;
      }
      ASSERT_TRUE(cut.is_cut[i]) << "round " << round;
      ASSERT_TRUE(cut.pixels[i] == expected.pixels[i]) << "round " << round;
    }
  }
  EXPECT_GT(refused_by_cpu, 100);
  EXPECT_GT(refused, refused_by_cpu / 2);
}

// ----- Images decoded on the GPU -----

class ImagesOnGpu : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    root_ = NewFolder();
    for (int i = 0; i < 40; ++i) {
      const JpegKind kinds[] = {{"4:2:0", 3, 2, 2}, {"grey", 1}, {"progressive", 3, 2, 2, true},
                                {"4:1:1", 3, 4, 1}, {"CMYK", 4}, {"4:4:4"}};
      WriteFile(fmt::format("{}/{}/{:02}.jpg", root_, i % 2 == 0 ? "a" : "b", i),
                Jpeg(kinds[i % 6], 300, 200 + i));
    }
  }

  std::shared_ptr<const Dataset> Open(bool gpu) const {
    ImageOptions options{.source = {.files = {root_}}, .size = kSide};
    if (gpu) options.gpu = kGpu;
    return OpenImages(options);
  }

  // Returns the pixels of the samples [begin, end), and their labels.
  static std::pair<std::vector<std::byte>, std::vector<int64_t>> Read(const Dataset& dataset,
                                                                      int64_t begin, int64_t end) {
    std::vector<int64_t> indices;
    for (int64_t i = begin; i < end; ++i) indices.push_back(i);
    std::pair<std::vector<std::byte>, std::vector<int64_t>> read;
    read.first.resize(kBytes * indices.size());
    read.second.resize(indices.size());
    dataset.ReadSome(indices, /*epoch=*/3, read.first.data(),
                     reinterpret_cast<std::byte*>(read.second.data()));
    return read;
  }

  std::string root_;
};

TEST_F(ImagesOnGpu, AreTheCpusWhateverTheFilesKind) {
  const auto cpu = Open(false), gpu = Open(true);
  EXPECT_EQ(cpu->samples_at_once(), 1);
  EXPECT_EQ(gpu->samples_at_once(), GpuDecoder::kAtOnce);
  const auto [expected, labels] = Read(*cpu, 0, cpu->size());
  const auto [pixels, gpu_labels] = Read(*gpu, 0, gpu->size());
  EXPECT_EQ(gpu_labels, labels);
  for (int64_t i = 0; i < gpu->size(); ++i) {
    const auto of = [&](const std::vector<std::byte>& all) {
      const auto* first = reinterpret_cast<const uint8_t*>(all.data()) + i * kBytes;
      return Pixels(first, first + kBytes);
    };
    // The CPU decoder downscales while it decodes, and the GPU decoder does not. So a mean difference of less than 4
    // levels is allowed.
    EXPECT_LT(Between(of(pixels), of(expected)).mean, 4) << i;
    EXPECT_TRUE(Read(*gpu, i, i + 1).first ==
                std::vector(pixels.begin() + i * kBytes, pixels.begin() + (i + 1) * kBytes));
  }
}

TEST_F(ImagesOnGpu, NameTheFileThatCannotBeRead) {
  const std::string file = Jpeg(kPlainKinds[3], 300, 200);
  WriteFile(root_ + "/a/03.jpg", file.substr(0, file.size() / 2));
  const auto cpu = Open(false), gpu = Open(true);
  const std::string expected = DataErrorOf([&] { Read(*cpu, 0, cpu->size()); });
  EXPECT_THAT(expected, testing::HasSubstr("a/03.jpg: truncated JPEG file"));
  EXPECT_EQ(DataErrorOf([&] { Read(*gpu, 0, gpu->size()); }), expected);
}

}  // namespace
}  // namespace lockstep
