// Compares values and gradients with those of LibTorch's roll and permute, bit by bit. The twin (the plain ATen
// implementation) is tested on any machine, and the kernels are tested if there is a GPU.

#include "ops/attention/windows.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

struct Case {
  std::vector<int64_t> image;
  WindowCut cut;
};

// Returns the cases: windows of Swin's sizes with and without a shift; windows and images whose sides differ; an image
// that is one window, one row or one column of windows; windows of one pixel; channels that fill one pack, several
// packs, or no whole packs; negative shifts and shifts beyond the image; and many blocks, the last of which is not
// full.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t size : {7, 8, 1}) {
    for (const int64_t shift : {0, 3}) {
      for (const int64_t channels : {8, 96, 97}) {
        cases.push_back({{3, 2 * size, 3 * size, channels}, {size, size, shift, shift}});
        cases.push_back({{2, 4 * size, size, channels}, {size, size, shift, shift}});
        cases.push_back({{2, size, 2 * size, channels}, {size, size, shift, shift}});
        cases.push_back({{1, size, size, channels}, {size, size, shift, shift}});
      }
    }
  }
  cases.push_back({{3, 6, 20, 24}, {2, 5, 1, 4}});
  cases.push_back({{3, 6, 20, 24}, {2, 5, 0, 2}});
  cases.push_back({{3, 6, 20, 24}, {2, 5, 3, 0}});
  cases.push_back({{2, 6, 20, 8}, {6, 5, -1, -2}});
  cases.push_back({{2, 6, 20, 8}, {1, 5, 0, 0}});
  cases.push_back({{2, 6, 20, 8}, {1, 1, 13, 47}});
  cases.push_back({{5, 56, 56, 96}, {7, 7, 3, 3}});
  cases.push_back({{3, 28, 14, 384}, {7, 7, 0, 0}});
  return cases;
}

at::Tensor Partitioned(const at::Tensor& image, const WindowCut& cut) {
  const int64_t rows = image.size(1) / cut.height;
  const int64_t columns = image.size(2) / cut.width;
  return at::roll(image, {-cut.down, -cut.right}, {1, 2})
      .view({image.size(0), rows, cut.height, columns, cut.width, image.size(3)})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, cut.height * cut.width, image.size(3)});
}

class WindowsTest : public OpTest {};

TEST_P(WindowsTest, AreLibTorchs) {
  for (const auto& [sizes, cut] : Cases()) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " in " << cut.height << " x "
                                    << cut.width << " from " << cut.down << ", " << cut.right);
    const at::Tensor image = at::randn(sizes, options()).requires_grad_();
    EXPECT_EQ(HasWindowsKernels(image), device() == at::kCUDA && sizes[3] % 8 == 0);
    const at::Tensor expected = Partitioned(image, cut);
    const at::Tensor windows = ToWindows(image, cut);
    EXPECT_TRUE(windows.is_contiguous());
    EXPECT_EQ(windows.scalar_type(), dtype());
    ASSERT_EQ(windows.sizes(), expected.sizes());
    EXPECT_TRUE(at::equal(windows, expected));
    const at::Tensor d = at::randn_like(expected);
    EXPECT_TRUE(at::equal(torch::autograd::grad({windows}, {image}, {d})[0],
                          torch::autograd::grad({expected}, {image}, {d})[0]));

    const at::Tensor parts = expected.detach().clone().requires_grad_();
    const at::Tensor back = FromWindows(parts, sizes[1], sizes[2], cut);
    ASSERT_EQ(back.sizes(), image.sizes());
    EXPECT_TRUE(back.is_contiguous());
    EXPECT_TRUE(at::equal(back, image));
    const at::Tensor d_image = at::randn_like(image);
    EXPECT_TRUE(
        at::equal(torch::autograd::grad({back}, {parts}, {d_image})[0], Partitioned(d_image, cut)));
  }
}

TEST_P(WindowsTest, TakesAnyLayout) {
  const WindowCut cut{.height = 2, .width = 5, .down = 1, .right = 2};
  const at::Tensor image = at::randn({3, 16, 6, 10}, options()).permute({0, 2, 3, 1});
  EXPECT_TRUE(at::equal(ToWindows(image, cut), Partitioned(image.contiguous(), cut)));
  const at::Tensor misaligned = at::randn({3 * 6 * 10 * 16 + 1}, options()).slice(0, 1);
  const at::Tensor view = misaligned.view({3, 6, 10, 16});
  const at::Tensor windows = ToWindows(view, cut);
  EXPECT_TRUE(at::equal(windows, Partitioned(view, cut)));
  const at::Tensor other = at::empty({16, 18, 10}, options()).permute({1, 2, 0}).copy_(windows);
  EXPECT_TRUE(at::equal(FromWindows(other, 6, 10, cut), view));
}

// Checks that the gradients can be differentiated again.
TEST_P(WindowsTest, CanBeDifferentiatedTwice) {
  const WindowCut cut{.height = 3, .width = 2, .down = 2, .right = 1};
  const at::Tensor image = at::randn({2, 6, 8, 8}, options()).requires_grad_();
  const auto second = [&](const at::Tensor& windows) {
    const at::Tensor first = torch::autograd::grad({(windows * windows).sum()}, {image}, {},
                                                   /*retain_graph=*/true, /*create_graph=*/true)[0];
    return torch::autograd::grad({(first * first * first).sum()}, {image})[0];
  };
  EXPECT_TRUE(at::equal(second(ToWindows(image, cut)), second(Partitioned(image, cut))));
  const at::Tensor windows = ToWindows(image, cut).detach().requires_grad_();
  const at::Tensor back = FromWindows(windows, 6, 8, cut);
  const at::Tensor first = torch::autograd::grad({(back * back).sum()}, {windows}, {},
                                                 /*retain_graph=*/true, /*create_graph=*/true)[0];
  EXPECT_TRUE(at::equal(first, 2 * windows));
  EXPECT_TRUE(
      at::equal(torch::autograd::grad({first.sum()}, {windows})[0], at::full_like(windows, 2)));
}

TEST_P(WindowsTest, MovesNothingIfWindowsAreImages) {
  const at::Tensor image = at::randn({3, 7, 7, 8}, options());
  const WindowCut cut{.height = 7, .width = 7};
  const at::Tensor windows = ToWindows(image, cut);
  EXPECT_EQ(windows.const_data_ptr(), image.const_data_ptr());
  EXPECT_EQ(FromWindows(windows, 7, 7, cut).const_data_ptr(), image.const_data_ptr());
}

INSTANTIATE_TEST_SUITE_P(, WindowsTest, EveryDeviceAndType(), DeviceAndType);

TEST(Windows, TakesNoImages) {
  const WindowCut cut{.height = 2, .width = 2, .down = 1, .right = 1};
  const at::Tensor windows = ToWindows(at::empty({0, 4, 6, 8}), cut);
  EXPECT_EQ(windows.sizes(), at::IntArrayRef({0, 4, 8}));
  EXPECT_EQ(FromWindows(windows, 4, 6, cut).sizes(), at::IntArrayRef({0, 4, 6, 8}));
}

TEST(Windows, HasTheSizesOnAForetoldGpu) {
  const WindowCut cut{.height = 2, .width = 2, .down = 1, .right = 1};
  const at::Tensor image =
      at::empty({3, 4, 6, 8}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)).requires_grad_();
  EXPECT_TRUE(HasWindowsKernels(image));
  const at::Tensor windows = ToWindows(image, cut);
  EXPECT_EQ(windows.sizes(), at::IntArrayRef({18, 4, 8}));
  const at::Tensor back = FromWindows(windows, 4, 6, cut);
  EXPECT_EQ(back.sizes(), image.sizes());
  EXPECT_EQ(torch::autograd::grad({back}, {image}, {at::empty_like(back)})[0].sizes(),
            image.sizes());
}

TEST(Windows, RefusesWhatDoesNotFit) {
  const at::Tensor image = at::zeros({2, 6, 8, 8});
  EXPECT_THROW(ToWindows(image, {.height = 4, .width = 2}), c10::Error);
  EXPECT_THROW(ToWindows(image, {.height = 2, .width = 3}), c10::Error);
  EXPECT_THROW(ToWindows(image, {.height = 0, .width = 2}), c10::Error);
  EXPECT_THROW(ToWindows(image[0], {.height = 2, .width = 2}), c10::Error);
  EXPECT_THROW(FromWindows(at::zeros({5, 4, 8}), 4, 4, {.height = 2, .width = 2}), c10::Error);
  EXPECT_THROW(FromWindows(at::zeros({4, 6, 8}), 4, 4, {.height = 2, .width = 2}), c10::Error);
  EXPECT_THROW(FromWindows(at::zeros({4, 8}), 4, 4, {.height = 2, .width = 2}), c10::Error);
}

}  // namespace
}  // namespace lockstep::ops
