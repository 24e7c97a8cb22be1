#include "data/images/resize.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// An image whose last row ends at the end of its memory, so that the address sanitizer reports a read beyond this row.
// `gap` is the number of bytes between two rows.
struct Image {
  Image(int64_t width, int64_t height, int64_t gap = 0)
      : bytes(3 * width * height + gap * (height - 1)),
        memory(new uint8_t[bytes]),
        view{memory.get(), width, height, 3 * width + gap} {}

  uint8_t& At(int64_t x, int64_t y, int64_t colour) {
    return memory[y * view.stride + 3 * x + colour];
  }

  int64_t bytes;
  std::unique_ptr<uint8_t[]> memory;
  ImageView view;
};

// Returns an image of random values from 0 to 255 or, with `extreme`, of the values 0 and 255 only.
Image RandomImage(int64_t width, int64_t height, bool extreme = false, int64_t gap = 0) {
  Image image(width, height, gap);
  std::mt19937 random(static_cast<uint32_t>(width * 10007 + height));
  for (int64_t i = 0; i < image.bytes; ++i) {
    const uint32_t value = random() >> 16;
    image.memory[i] = static_cast<uint8_t>(extreme ? (value % 2) * 255 : value % 256);
  }
  return image;
}

std::vector<uint8_t> Resized(const ImageView& source, const Box& box, int64_t width, int64_t height,
                             bool mirror) {
  // The memory has exactly the result's size, so that the address sanitizer reports a write beyond it.
  const int64_t bytes = 3 * width * height;
  const std::unique_ptr<uint8_t[]> output(new uint8_t[bytes]);
  std::fill_n(output.get(), bytes, 77);
  Resizer resizer;
  resizer.Resize(source, box, width, height, mirror, output.get());
  return std::vector<uint8_t>(output.get(), output.get() + bytes);
}

Box Whole(const ImageView& image) {
  return {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
}

// The weights of the source pixels from `begin` on for one output pixel, as resize.h defines them.
struct Window {
  int64_t begin = 0;
  std::vector<double> weights;
};

Window MakeWindow(int64_t size, double box_begin, double box_size, int64_t count, int64_t i) {
  const double scale = box_size / static_cast<double>(count);
  const double support = std::max(1.0, scale);
  const double centre = box_begin + (static_cast<double>(i) + 0.5) * scale;
  Window window;
  double total = 0;
  for (int64_t x = 0; x < size; ++x) {
    const double weight = 1 - std::abs(static_cast<double>(x) + 0.5 - centre) / support;
    if (weight <= 0) continue;
    if (window.weights.empty()) window.begin = x;
    window.weights.push_back(weight);
    total += weight;
  }
  for (double& weight : window.weights) weight /= total;
  return window;
}

std::vector<uint8_t> Reference(const ImageView& source, const Box& box, int64_t width,
                               int64_t height, bool mirror) {
  std::vector<Window> columns;
  for (int64_t x = 0; x < width; ++x) {
    columns.push_back(MakeWindow(source.width, box.x, box.width, width, x));
  }
  if (mirror) std::reverse(columns.begin(), columns.end());
  std::vector<uint8_t> output;
  for (int64_t y = 0; y < height; ++y) {
    const Window row = MakeWindow(source.height, box.y, box.height, height, y);
    for (const Window& column : columns) {
      double sums[3] = {};
      for (size_t v = 0; v < row.weights.size(); ++v) {
        const uint8_t* pixel = source.pixels +
                               (row.begin + static_cast<int64_t>(v)) * source.stride +
                               3 * column.begin;
        for (const double weight : column.weights) {
          for (double& sum : sums) sum += row.weights[v] * weight * *pixel++;
        }
      }
      for (const double sum : sums) output.push_back(static_cast<uint8_t>(std::lround(sum)));
    }
  }
  return output;
}

int MaximumDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  int maximum = 0;
  for (size_t i = 0; i < a.size(); ++i) maximum = std::max(maximum, std::abs(a[i] - b[i]));
  return maximum;
}

struct Case {
  int64_t source_width;
  int64_t source_height;
  Box box;
  int64_t width;
  int64_t height;
};

std::string Name(const Case& c) {
  return std::to_string(c.source_width) + "x" + std::to_string(c.source_height) + " box " +
         std::to_string(c.box.x) + "," + std::to_string(c.box.y) + " " +
         std::to_string(c.box.width) + "x" + std::to_string(c.box.height) + " to " +
         std::to_string(c.width) + "x" + std::to_string(c.height);
}

std::vector<Case> Cases() {
  return {
      // Whole images of odd sizes.
      {1, 1, {0, 0, 1, 1}, 1, 1},
      {1, 1, {0, 0, 1, 1}, 9, 40},
      {7, 5, {0, 0, 7, 5}, 7, 5},
      {7, 5, {0, 0, 7, 5}, 3, 2},
      {7, 5, {0, 0, 7, 5}, 224, 224},
      {333, 217, {0, 0, 333, 217}, 224, 224},
      {333, 217, {0, 0, 333, 217}, 97, 131},
      {580, 434, {0, 0, 580, 434}, 224, 224},
      {580, 434, {0, 0, 580, 434}, 641, 33},
      // Boxes with edges between pixels, and at the borders.
      {333, 217, {10.25, 3.75, 200.5, 100.125}, 224, 224},
      {333, 217, {0.5, 0.5, 332, 216}, 61, 224},
      {333, 217, {0, 0, 50.3, 60.7}, 224, 224},
      {333, 217, {300, 190, 33, 27}, 224, 224},
      {333, 217, {332.5, 0, 0.5, 217}, 20, 50},
      {580, 434, {205.1, 40.9, 374.9, 393.1}, 224, 224},
      {580, 434, {0, 433, 580, 1}, 224, 224},
      // Boxes that are narrower than a vector (64 bytes, 21.3 pixels) in a wider image, and images that are about as
      // wide as a vector.
      {100, 50, {90, 0, 10, 50}, 20, 20},
      {100, 50, {79, 10, 21, 20}, 22, 64},
      {22, 50, {0, 0, 22, 50}, 5, 65},
      {21, 50, {0, 0, 21, 50}, 6, 95},
      // Images that are enlarged or much reduced.
      {100, 80, {0, 0, 100, 80}, 224, 224},
      {2000, 1500, {0, 0, 2000, 1500}, 224, 224},
      {3000, 20, {0, 0, 3000, 20}, 5, 300},
      {20, 3000, {0, 0, 20, 3000}, 300, 5},
      {1300, 900, {1.5, 2.5, 1298, 897}, 29, 41},
      // An output of one pixel, one row or one column.
      {580, 434, {0, 0, 580, 434}, 1, 1},
      {2000, 1500, {100, 100, 1000, 1000}, 1, 1},
      {333, 217, {5, 6, 7, 8}, 1, 224},
      {333, 217, {5, 6, 7, 8}, 224, 1},
  };
}

TEST(Resizer, MatchesTheDefinition) {
  for (const Case& c : Cases()) {
    for (const bool extreme : {false, true}) {
      for (const bool mirror : {false, true}) {
        const Image image = RandomImage(c.source_width, c.source_height, extreme);
        EXPECT_LE(MaximumDifference(Resized(image.view, c.box, c.width, c.height, mirror),
                                    Reference(image.view, c.box, c.width, c.height, mirror)),
                  1)
            << Name(c) << (extreme ? ", black and white" : "") << (mirror ? ", mirrored" : "");
      }
    }
  }
}

TEST(Resizer, MatchesTheDefinitionForRandomBoxes) {
  std::mt19937 random(5);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int i = 0; i < 200; ++i) {
    Case c;
    c.source_width = static_cast<int64_t>(std::exp(uniform(0, 6.5)));
    c.source_height = static_cast<int64_t>(std::exp(uniform(0, 6.5)));
    c.box.x = uniform(0, 0.9) * static_cast<double>(c.source_width);
    c.box.y = uniform(0, 0.9) * static_cast<double>(c.source_height);
    c.box.width = uniform(0.1, 1) * (static_cast<double>(c.source_width) - c.box.x);
    c.box.height = uniform(0.1, 1) * (static_cast<double>(c.source_height) - c.box.y);
    c.width = static_cast<int64_t>(std::exp(uniform(0, 5)));
    c.height = static_cast<int64_t>(std::exp(uniform(0, 5)));
    const Image image = RandomImage(c.source_width, c.source_height);
    EXPECT_LE(MaximumDifference(Resized(image.view, c.box, c.width, c.height, false),
                                Reference(image.view, c.box, c.width, c.height, false)),
              1)
        << Name(c);
  }
}

TEST(Resizer, ConstantStaysConstant) {
  for (const Case& c : Cases()) {
    for (const int value : {0, 1, 127, 128, 254, 255}) {
      const Image image(c.source_width, c.source_height);
      std::fill_n(image.memory.get(), image.bytes, static_cast<uint8_t>(value));
      const std::vector<uint8_t> output = Resized(image.view, c.box, c.width, c.height, false);
      EXPECT_TRUE(std::all_of(output.begin(), output.end(), [&](int v) { return v == value; }))
          << value << " " << Name(c);
    }
  }
}

TEST(Resizer, WholeImageAtItsOwnSizeStays) {
  const Image image = RandomImage(333, 217);
  EXPECT_EQ(Resized(image.view, Whole(image.view), 333, 217, false),
            std::vector<uint8_t>(image.memory.get(), image.memory.get() + image.bytes));
}

TEST(Resizer, MirrorsTheResult) {
  for (const Case& c : Cases()) {
    const Image image = RandomImage(c.source_width, c.source_height);
    const std::vector<uint8_t> plain = Resized(image.view, c.box, c.width, c.height, false);
    std::vector<uint8_t> mirrored;
    for (int64_t y = 0; y < c.height; ++y) {
      for (int64_t x = c.width - 1; x >= 0; --x) {
        const uint8_t* pixel = plain.data() + 3 * (y * c.width + x);
        mirrored.insert(mirrored.end(), pixel, pixel + 3);
      }
    }
    EXPECT_EQ(Resized(image.view, c.box, c.width, c.height, true), mirrored) << Name(c);
  }
}

TEST(Resizer, IgnoresGapsBetweenRows) {
  for (const Case& c : Cases()) {
    Image image = RandomImage(c.source_width, c.source_height);
    Image with_gaps = RandomImage(c.source_width, c.source_height, false, 13);
    for (int64_t y = 0; y < c.source_height; ++y) {
      std::copy_n(&image.At(0, y, 0), 3 * c.source_width, &with_gaps.At(0, y, 0));
    }
    EXPECT_EQ(Resized(with_gaps.view, c.box, c.width, c.height, false),
              Resized(image.view, c.box, c.width, c.height, false))
        << Name(c);
  }
}

TEST(Resizer, KeepsNothingFromTheCallBefore) {
  Resizer resizer;
  for (const Case& c : Cases()) {
    const Image image = RandomImage(c.source_width, c.source_height);
    std::vector<uint8_t> output(3 * c.width * c.height);
    resizer.Resize(image.view, c.box, c.width, c.height, true, output.data());
    EXPECT_EQ(output, Resized(image.view, c.box, c.width, c.height, true)) << Name(c);
  }
}

TEST(Resizer, IsTheSameWithEveryInstructionSet) {
  // The destructor of `restore` makes later tests use all instruction sets again, however this test ends.
  struct Restore {
    ~Restore() {
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
  } restore;
  const std::vector<Case> cases = Cases();
  std::vector<std::vector<uint8_t>> expected;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      const Image image = RandomImage(c.source_width, c.source_height);
      std::vector<uint8_t> output = Resized(image.view, c.box, c.width, c.height, false);
      if (expected.size() <= i) {
        expected.push_back(std::move(output));
      } else {
        EXPECT_EQ(output, expected[i]) << hwy::TargetName(target) << " " << Name(c);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
