#include "ops/common/pack.cuh"
#include "ops/common/warp_sum.cuh"
#include "ops/pixels/augment_draws.h"
#include "ops/pixels/augment_pixels_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kRounds = 4;  // the number of groups of pixels that a thread writes

struct Rgb {
  float r, g, b;
};

// The draws of an image for the colour operations, and, if the image's contrast changes, the image's mean grey value
// just before the contrast operation. The struct is kept in shared memory, because it is read for every pixel.
struct Colours {
  float draws[kLeft];
  float grey_mean;
};

__device__ float Grey(const Rgb& x) { return 0.2989F * x.r + 0.587F * x.g + 0.114F * x.b; }

__device__ Rgb Blend(const Rgb& x, float other, float share) {
  const float rest = (1 - share) * other;
  return {__saturatef(fmaf(share, x.r, rest)), __saturatef(fmaf(share, x.g, rest)),
          __saturatef(fmaf(share, x.b, rest))};
}

// Rotates the hue in the HSV colour space. Each channel of the result is value - range * max(0, min(k, 4 - k, 1)),
// where value is the greatest channel, range is the difference between the greatest and the smallest channel, and k is
// the new hue in sixths of the circle, counted from an origin that differs for each channel.
__device__ Rgb AdjustHue(const Rgb& x, float turn) {
  const float value = fmaxf(x.r, fmaxf(x.g, x.b));
  const float range = value - fminf(x.r, fminf(x.g, x.b));
  if (range == 0) return x;
  float sixths;
  if (value == x.r) {
    sixths = (x.g - x.b) / range;
  } else if (value == x.g) {
    sixths = 2 + (x.b - x.r) / range;
  } else {
    sixths = 4 + (x.r - x.g) / range;
  }
  const auto channel = [&](float offset) {
    const float turned = sixths + fmaf(6, turn, offset);
    const float place = turned - 6 * floorf(turned * (1 / 6.0F));
    return fmaf(-range, __saturatef(fminf(place, 4 - place)), value);
  };
  return {channel(5), channel(3), channel(1)};
}

// Returns pixel x after the image's colour operations. If kBeforeContrast is true, only the operations before the
// contrast operation are applied.
template <bool kBeforeContrast>
__device__ Rgb WithColours(Rgb x, const Colours& colours) {
  for (int i = 0; i < kColourOperations; ++i) {
    const int operation = static_cast<int>(colours.draws[kOrder + i]);
    if (kBeforeContrast && operation == kContrast) break;
    const float factor = colours.draws[operation];
    if (factor == (operation == kHue ? 0 : 1)) continue;
    if (operation == kBrightness) {
      x = Blend(x, 0, factor);
    } else if (operation == kContrast) {
      x = Blend(x, colours.grey_mean, factor);
    } else if (operation == kSaturation) {
      x = Blend(x, Grey(x), factor);
    } else {
      x = AdjustHue(x, factor);
    }
  }
  return x;
}

// A group of kPixels adjacent pixels with three channels, as three packs. If the image is contiguous, there is one pack
// for each channel's plane. If the image is channels last, the three packs follow one another in memory.
template <typename T, int kPixels, bool kChannelsLast>
struct Group {
  Pack<T, kPixels> packs[3];

  static __device__ int PlaceOf(int pack, int plane, int first) {
    return kChannelsLast ? 3 * first + pack * kPixels : pack * plane + first;
  }
  static __device__ Group Load(const T* image, int plane, int first) {
    Group group;
    for (int i = 0; i < 3; ++i) {
      group.packs[i] = *reinterpret_cast<const Pack<T, kPixels>*>(image + PlaceOf(i, plane, first));
    }
    return group;
  }
  __device__ void Store(T* image, int plane, int first) const {
    for (int i = 0; i < 3; ++i) {
      *reinterpret_cast<Pack<T, kPixels>*>(image + PlaceOf(i, plane, first)) = packs[i];
    }
  }
  __device__ T& At(int pixel, int channel) {
    const int place = kChannelsLast ? 3 * pixel + channel : channel * kPixels + pixel;
    return packs[place / kPixels].values[place % kPixels];
  }
  __device__ Rgb PixelAt(int pixel) {
    const auto share = [&](int channel) { return At(pixel, channel) * (1 / 255.0F); };
    return {share(0), share(1), share(2)};
  }
};

template <int kPixels, bool kChannelsLast>
using Bytes = Group<uint8_t, kPixels, kChannelsLast>;

// Computes grey_sums[n, part], the sum of the grey values just before the contrast operation over a part of image n's
// pixels. Skips images whose contrast does not change.
template <int kPixels, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads) SumGrey(AugmentArguments a) {
  __shared__ Colours colours;
  __shared__ float warp_sums[kThreads / kWarp];
  const int64_t n = blockIdx.x / kGreyParts;
  const int part = blockIdx.x % kGreyParts;
  const float* draws = a.draws + n * kAugmentDraws;
  if (draws[kContrast] == 1) return;
  if (threadIdx.x < kLeft) colours.draws[threadIdx.x] = draws[threadIdx.x];
  __syncthreads();
  const int plane = a.height * a.width;
  const uint8_t* image = a.pixels + n * 3 * plane;
  float sum = 0;
  for (int group = part * kThreads + threadIdx.x; group < plane / kPixels;
       group += kGreyParts * kThreads) {
    auto bytes = Bytes<kPixels, kChannelsLast>::Load(image, plane, group * kPixels);
    for (int i = 0; i < kPixels; ++i) sum += Grey(WithColours<true>(bytes.PixelAt(i), colours));
  }
  SumOverWarp(sum);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  sum = threadIdx.x < kThreads / kWarp ? warp_sums[threadIdx.x] : 0;
  SumOverWarp(sum);
  if (threadIdx.x == 0) a.grey_sums[blockIdx.x] = sum;
}

// Sets colours[0] for image n and colours[1] for image `before`, with which image n is mixed. All threads of a block
// must call this function.
__device__ void LoadColours(const AugmentArguments& a, int64_t n, int64_t before,
                            Colours (&colours)[2]) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (warp < 2) {
    const int64_t image = warp == 0 ? n : before;
    const float* draws = a.draws + image * kAugmentDraws;
    const bool has_part = lane < kGreyParts && draws[kContrast] != 1;
    float sum = has_part ? a.grey_sums[image * kGreyParts + lane] : 0;
    SumOverWarp(sum);
    if (lane < kLeft) colours[warp].draws[lane] = draws[lane];
    if (lane == 0) colours[warp].grey_mean = sum / static_cast<float>(a.height * a.width);
  }
  __syncthreads();
}

// Returns the weight of the sample's own pixel in the mixed pixel number `place`, counted row by row.
__device__ float OwnShare(const float* mixture, int width, int place) {
  const auto y = static_cast<float>(place / width);
  const auto x = static_cast<float>(place % width);
  const bool inside =
      mixture[kLeft] <= x && x < mixture[kRight] && mixture[kTop] <= y && y < mixture[kBottom];
  return inside ? mixture[kOwnInBox] : 1;
}

// Augments images of three channels. A block writes kRounds * kThreads groups of pixels of one image.
template <typename T, int kPixels, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads) AugmentColours(AugmentArguments a, int blocks) {
  using Pixels = Bytes<kPixels, kChannelsLast>;
  __shared__ Colours colours[2];
  const int64_t n = blockIdx.x / blocks;
  const int64_t before = n == 0 ? a.count - 1 : n - 1;
  LoadColours(a, n, before, colours);
  const int plane = a.height * a.width;
  const int64_t image_size = int64_t{3} * plane;
  const bool mixes = a.draws[kOwnInBox] != 1;
  const int block = static_cast<int>(blockIdx.x % blocks);
  int group = block * kRounds * kThreads + static_cast<int>(threadIdx.x);
  for (int round = 0; round < kRounds; ++round, group += kThreads) {
    if (group >= plane / kPixels) return;
    const int first = group * kPixels;
    Pixels own = Pixels::Load(a.pixels + n * image_size, plane, first);
    Pixels other;
    if (mixes) other = Pixels::Load(a.pixels + before * image_size, plane, first);
    Group<T, kPixels, kChannelsLast> out;
    for (int i = 0; i < kPixels; ++i) {
      Rgb x = WithColours<false>(own.PixelAt(i), colours[0]);
      const float share = mixes ? OwnShare(a.draws, a.width, first + i) : 1;
      if (share != 1) {
        const Rgb y = WithColours<false>(other.PixelAt(i), colours[1]);
        x = {share * x.r + (1 - share) * y.r, share * x.g + (1 - share) * y.g,
             share * x.b + (1 - share) * y.b};
      }
      out.At(i, 0) = FromFloat<T>(fmaf(x.r, 255 * a.scale[0], a.shift[0]));
      out.At(i, 1) = FromFloat<T>(fmaf(x.g, 255 * a.scale[1], a.shift[1]));
      out.At(i, 2) = FromFloat<T>(fmaf(x.b, 255 * a.scale[2], a.shift[2]));
    }
    out.Store(static_cast<T*>(a.out) + n * image_size, plane, first);
  }
}

// Augments images of another number of channels, to which no colour operations are applied. A block writes kRounds *
// kThreads values of one image.
template <typename T>
__global__ void __launch_bounds__(kThreads) MixImages(AugmentArguments a, int blocks) {
  const int64_t n = blockIdx.x / blocks;
  const int64_t before = n == 0 ? a.count - 1 : n - 1;
  const int plane = a.height * a.width;
  const int image_size = a.channels * plane;
  const bool mixes = a.draws[kOwnInBox] != 1;
  const int block = static_cast<int>(blockIdx.x % blocks);
  int i = block * kRounds * kThreads + static_cast<int>(threadIdx.x);
  for (int round = 0; round < kRounds; ++round, i += kThreads) {
    if (i >= image_size) return;
    const int channel = a.channels_last ? i % a.channels : i / plane;
    float x = a.pixels[n * image_size + i];
    if (mixes) {
      const float share = OwnShare(a.draws, a.width, a.channels_last ? i / a.channels : i % plane);
      x = share * x + (1 - share) * a.pixels[before * image_size + i];
    }
    static_cast<T*>(a.out)[n * image_size + i] =
        FromFloat<T>(fmaf(x, a.scale[channel], a.shift[channel]));
  }
}

// Returns the number of blocks for one image of `groups` groups of pixels or values.
int BlocksFor(int groups) { return (groups + kRounds * kThreads - 1) / (kRounds * kThreads); }

unsigned Grid(int64_t blocks) { return static_cast<unsigned>(blocks); }

template <typename T, int kPixels, bool kChannelsLast>
void LaunchColours(const AugmentArguments& a, cudaStream_t stream) {
  SumGrey<kPixels, kChannelsLast><<<Grid(a.count * kGreyParts), kThreads, 0, stream>>>(a);
  const int blocks = BlocksFor(a.height * a.width / kPixels);
  AugmentColours<T, kPixels, kChannelsLast>
      <<<Grid(a.count * blocks), kThreads, 0, stream>>>(a, blocks);
}

template <typename T>
void Launch(const AugmentArguments& a, cudaStream_t stream) {
  if (a.channels != 3) {
    const int blocks = BlocksFor(a.channels * a.height * a.width);
    MixImages<T><<<Grid(a.count * blocks), kThreads, 0, stream>>>(a, blocks);
    return;
  }
  constexpr int kQuad = 4;
  const bool quads = a.height * a.width % kQuad == 0 && IsAligned(a.pixels, kQuad);
  if (quads && a.channels_last) {
    LaunchColours<T, kQuad, true>(a, stream);
  } else if (quads) {
    LaunchColours<T, kQuad, false>(a, stream);
  } else if (a.channels_last) {
    LaunchColours<T, 1, true>(a, stream);
  } else {
    LaunchColours<T, 1, false>(a, stream);
  }
}

}  // namespace

void LaunchAugmentPixels(const AugmentArguments& arguments, cudaStream_t stream) {
  WithType(arguments.type, [&](auto zero) { Launch<decltype(zero)>(arguments, stream); });
}

}  // namespace lockstep::ops
