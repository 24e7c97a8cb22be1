// Compares the copies and sums with those of LibTorch's operations on a CPU, bit by bit.

#include "ops/autocast/strided_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/autocast/own_operations.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct View {
  std::string name;
  std::function<at::Tensor(const at::Tensor& all)> of;  // a view of a tensor [6, 32, 5, 48]
  bool has_kernel = true;
};

const std::vector<View>& Views() {
  static const std::vector<View> views = {
      {"columns", [](const at::Tensor& all) { return all.narrow(3, 8, 16); }},
      {"columns of matrices",
       [](const at::Tensor& all) { return all.narrow(3, 8, 16).flatten(0, 2); }},
      {"parts of a projection",
       [](const at::Tensor& all) {
         return all.view({6, 160, 3, 2, 8}).permute({2, 0, 3, 1, 4})[1];
       }},
      {"channels of images",
       [](const at::Tensor& all) { return all.permute({0, 3, 1, 2}).narrow(1, 16, 24); }},
      {"every second row", [](const at::Tensor& all) { return all.slice(1, 1, 32, 2); }},
      {"expanded rows",
       [](const at::Tensor& all) { return all.narrow(1, 0, 1).expand({6, 32, 5, 48}); }},
      {"moved dimensions", [](const at::Tensor& all) { return all.permute({2, 1, 0, 3}); }},
      // There are no kernels for these.
      {"everything", [](const at::Tensor& all) { return all; }, false},
      {"odd columns", [](const at::Tensor& all) { return all.narrow(3, 8, 12); }, false},
      {"columns from an odd one", [](const at::Tensor& all) { return all.narrow(3, 3, 16); },
       false},
      {"transposed rows", [](const at::Tensor& all) { return all.transpose(2, 3); }, false},
      {"one element",
       [](const at::Tensor& all) { return all.narrow(0, 0, 1)[0][0][0].narrow(0, 0, 1); }, false},
      {"no elements", [](const at::Tensor& all) { return all.narrow(0, 0, 0); }, false},
  };
  return views;
}

class StridedSumTest : public OpTest {};

TEST_P(StridedSumTest, CopiesAndAddsAsLibTorch) {
  const at::Tensor host = at::randn({6, 32, 5, 48}).to(dtype());
  const at::Tensor all = host.to(device());
  for (const auto& [name, of, has_kernel] : Views()) {
    SCOPED_TRACE(name);
    const bool runs = has_kernel && Is16BitOnGpu();
    const at::Tensor own = of(all), wanted = of(host);
    // Like the view, the other tensors have their channels last if it is one of such images.
    const auto like = [&](const at::Tensor& values) {
      return at::empty(own.sizes(), own.options(), own.suggest_memory_format()).copy_(values);
    };
    const at::Tensor to = like(at::full({1}, 7, own.options()));
    EXPECT_EQ(StridedSum(own, {}, to), runs);
    if (runs) EXPECT_TRUE(at::equal(to.cpu(), wanted));
    const at::Tensor dense = at::randn(own.sizes()).to(dtype());
    const at::Tensor other = like(dense);
    EXPECT_EQ(StridedSum(own, other, to), runs);
    if (runs) EXPECT_TRUE(at::equal(to.cpu(), wanted + dense));
    EXPECT_EQ(StridedSum(other, own, other), runs);
    if (runs) EXPECT_TRUE(at::equal(other.cpu(), dense + wanted));
  }
}

TEST_P(StridedSumTest, AnswersForLibTorchsOperations) {
  UseOwnOperations();
  const at::Tensor host = at::randn({6, 32, 5, 48}).to(dtype());
  const at::Tensor all = host.to(device());
  for (const auto& [name, of, has_kernel] : Views()) {
    SCOPED_TRACE(name);
    const at::Tensor own = of(all), wanted = of(host);
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::Preserve, kLast}) {
      if (format == kLast && own.dim() != 4) continue;
      const at::Tensor copy = own.clone(format), expected = wanted.clone(format);
      EXPECT_EQ(copy.strides(), expected.strides());
      EXPECT_TRUE(at::equal(copy.cpu(), expected));
    }
    EXPECT_TRUE(at::equal(own.contiguous().cpu(), wanted.contiguous()));
    EXPECT_TRUE(at::equal(own.reshape({-1}).cpu(), wanted.reshape({-1})));
    const at::Tensor dense = at::randn(own.sizes()).to(dtype());
    const at::Tensor other = dense.clone().to(device());
    EXPECT_TRUE(at::equal((own + other).cpu(), wanted + dense));
    EXPECT_TRUE(at::equal((other + own).cpu(), dense + wanted));
    EXPECT_TRUE(at::equal(at::add(other, own, 2).cpu(), at::add(dense, wanted, 2)));
    EXPECT_EQ((other + own).strides(), (dense + wanted).strides());
    other.add_(own);
    EXPECT_TRUE(at::equal(other.cpu(), dense + wanted));
    EXPECT_TRUE(at::equal((own + own).cpu(), wanted + wanted));
    EXPECT_TRUE(at::equal((own + 1).cpu(), wanted + 1));
    EXPECT_EQ((own + at::ones({1}, own.options().dtype(at::kFloat))).scalar_type(), at::kFloat);
  }
  // Concatenations of parts, of which some do not lie contiguously.
  const at::Tensor large = at::randn({3, 16, 64, 96, 8}).to(dtype());
  const at::Tensor own_large = large.clone().to(device());
  for (const std::vector<int64_t>& order :
       {std::vector<int64_t>{0, 1, 2, 3, 4}, {0, 1, 3, 2, 4}, {0, 3, 1, 2, 4}, {0, 1, 2, 4, 3}}) {
    const auto parts = [&](const at::Tensor& of) {
      return std::vector<at::Tensor>{of.permute(order)[0], of.permute(order)[1],
                                     of.permute(order)[2].contiguous()};
    };
    for (const int64_t dim : {0, 1, -1}) {
      const at::Tensor joined = at::cat(parts(own_large), dim);
      EXPECT_EQ(joined.strides(), at::cat(parts(large), dim).strides());
      EXPECT_TRUE(at::equal(joined.cpu(), at::cat(parts(large), dim)));
    }
    EXPECT_TRUE(at::equal(at::stack(parts(own_large), 0).cpu(), at::stack(parts(large), 0)));
  }
  const auto columns = [](const at::Tensor& of) {  // channels of channels-last images
    return std::vector<at::Tensor>{of[0].narrow(3, 0, 8), of[1].narrow(3, 0, 8).clone(kLast)};
  };
  EXPECT_TRUE(at::equal(at::cat(columns(own_large.transpose(3, 4)), 1).cpu(),
                        at::cat(columns(large.transpose(3, 4)), 1)));
  EXPECT_THROW(at::cat({own_large[0], own_large[1].narrow(2, 0, 50)}, 1), c10::Error);

  // A tensor that is added to itself, moved.
  const at::Tensor square = at::randn({16, 16, 8}).to(dtype());
  const at::Tensor own = square.clone().to(device());
  own.add_(own.transpose(0, 1).clone());
  EXPECT_TRUE(at::equal(own.cpu(), square + square.transpose(0, 1)));
}

INSTANTIATE_TEST_SUITE_P(, StridedSumTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
