#include "base/ceil_divide.h"
#include "data/images/resize_on_gpu.h"

namespace lockstep {
namespace {

constexpr int kColumns = 32;  // the width of a thread block; its height is kRows
constexpr int kRows = 8;
constexpr int kChannels = 3;

// The filter of one output pixel on one axis: the source pixels [begin, end) that are under the triangle around the
// output pixel's centre.
struct Filter {
  int begin;
  int end;
  float offset;  // from the filter's centre to the centre of pixel `begin`, in pixels
  float slope;

  __device__ Filter(int64_t size, double box_begin, double box_size, int64_t i, int64_t count) {
    const double scale = box_size / static_cast<double>(count);
    const double support = fmax(1.0, scale);
    const double centre = box_begin + (static_cast<double>(i) + 0.5) * scale;
    begin = static_cast<int>(fmax(0.0, centre - support + 0.5));
    end = static_cast<int>(fmin(static_cast<double>(size), centre + support + 0.5));
    offset = static_cast<float>(begin + 0.5 - centre);
    slope = static_cast<float>(1 / support);
  }

  __device__ float WeightOf(int t) const {
    return fmaxf(0.0f, 1 - fabsf(offset + static_cast<float>(t - begin)) * slope);
  }
};

__global__ void Resize(const GpuResize* jobs, int width, int height, uint8_t* output) {
  const GpuResize& job = jobs[blockIdx.z];
  const int x = blockIdx.x * kColumns + threadIdx.x;
  const int y = blockIdx.y * kRows + threadIdx.y;
  if (job.source.pixels == nullptr || x >= width || y >= height) return;
  const Filter columns(job.source.width, job.box.x, job.box.width, x, width);
  const Filter rows(job.source.height, job.box.y, job.box.height, y, height);

  float sums[kChannels] = {};
  float total = 0;
  for (int v = rows.begin; v < rows.end; ++v) {
    const uint8_t* row = job.source.pixels + v * job.source.stride;
    const float row_weight = rows.WeightOf(v);
    for (int u = columns.begin; u < columns.end; ++u) {
      const float weight = row_weight * columns.WeightOf(u);
      total += weight;
      for (int c = 0; c < kChannels; ++c) sums[c] += weight * row[kChannels * u + c];
    }
  }

  const int64_t pixels = int64_t{width} * height;
  const int64_t place = int64_t{y} * width + (job.mirror ? width - 1 - x : x);
  uint8_t* out = output + kChannels * (blockIdx.z * pixels + place);
  for (int c = 0; c < kChannels; ++c) out[c] = static_cast<uint8_t>(sums[c] / total + 0.5f);
}

}  // namespace

void LaunchResize(const GpuResize* jobs, int64_t count, int64_t width, int64_t height,
                  uint8_t* output, cudaStream_t stream) {
  if (count == 0) return;
  const auto blocks = [](int64_t pixels, int64_t threads) {
    return static_cast<unsigned>(CeilDivide(pixels, threads));
  };
  const dim3 grid(blocks(width, kColumns), blocks(height, kRows), static_cast<unsigned>(count));
  Resize<<<grid, dim3(kColumns, kRows), 0, stream>>>(jobs, static_cast<int>(width),
                                                     static_cast<int>(height), output);
}

}  // namespace lockstep
