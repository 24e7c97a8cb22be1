// The keys and plans of convolutions. A key says which convolution it is, and a plan says which of cuDNN's engines
// computes the convolution. A plan file keeps both as text (plan_file.h). Nothing here needs a GPU.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

enum class ConvolutionPass { kForward, kInputGradient, kWeightGradient };

// "forward", "input gradient", "weight gradient".
std::string_view NameOf(ConvolutionPass pass);

// x [count, inputs, height, width] by weight [outputs, inputs, kernel_height, kernel_width], all channels last and
// of one type, with `padding` on all sides: all that an engine is chosen by.
struct ConvolutionKey {
  ConvolutionPass pass = ConvolutionPass::kForward;
  int64_t count = 0;
  int64_t inputs = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t outputs = 0;
  int64_t kernel_height = 0;
  int64_t kernel_width = 0;
  int64_t stride = 1;
  int64_t padding = 0;
  FloatType type = FloatType::kBFloat16;  // of 16 bits

  auto operator<=>(const ConvolutionKey&) const = default;

  // The result's.
  int64_t OutputHeight() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  int64_t OutputWidth() const { return (width + 2 * padding - kernel_width) / stride + 1; }
};

// "weight gradient of 256x64x56x56 by 64x64x3x3 stride 1 padding 1 bf16": all of it.
std::string Description(const ConvolutionKey& key);

struct ConvolutionPlan {
  int64_t engine = 0;
  std::map<int64_t, int64_t> knobs;  // by cudnn_frontend::KnobType_t, whose numbers are lasting
  int64_t workspace_bytes = 0;
  // Measured, of this plan and of the first that cuDNN proposes; 0: not measured.
  double us = 0;
  double first_us = 0;

  bool operator==(const ConvolutionPlan&) const = default;

  // Whether it is the same engine with the same knobs, however fast it was.
  bool RunsAs(const ConvolutionPlan& other) const {
    return engine == other.engine && knobs == other.knobs;
  }
};

// "engine 62 knobs 2:4,13:0 workspace 0 us 80.125 first 90.250", and back; nothing: it is none.
std::string TextOf(const ConvolutionPlan& plan);
std::optional<ConvolutionPlan> ParseConvolutionPlan(const std::string& text);

}  // namespace lockstep::ops
