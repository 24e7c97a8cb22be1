// The keys and plans of convolutions. A key identifies a convolution, and a plan says which of cuDNN's engines computes
// the convolution. A plan file keeps keys and plans as text (plan_file.h). The code in this file needs no GPU.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ops/common/float_type.h"

namespace lockstep::ops {

enum class ConvolutionPass { kForward, kInputGradient, kWeightGradient };

// Returns the name of the pass: "forward", "input gradient" or "weight gradient".
std::string_view NameOf(ConvolutionPass pass);

// The properties of a convolution on which the choice of an engine depends. x is [count, inputs, height, width], and
// weight is [outputs, inputs, kernel_height, kernel_width]. Both have the channels last and the same type. `padding` is
// added on all sides.
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
  FloatType type = FloatType::kBFloat16;  // one of the 16-bit types

  auto operator<=>(const ConvolutionKey&) const = default;

  // Return the height and the width of the convolution's output y.
  int64_t OutputHeight() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  int64_t OutputWidth() const { return (width + 2 * padding - kernel_width) / stride + 1; }
};

// Returns a text with all fields of the key, for example "weight gradient of 256x64x56x56 by 64x64x3x3 stride 1 padding
// 1 bf16".
std::string Description(const ConvolutionKey& key);

struct ConvolutionPlan {
  int64_t engine = 0;
  // The values of the engine's parameters. The map's key is a cudnn_frontend::KnobType_t, whose numbers do not change
  // between versions.
  std::map<int64_t, int64_t> knobs;
  int64_t workspace_bytes = 0;
  // The measured times, in microseconds, of this plan and of the first plan that cuDNN proposes; 0 if not measured.
  double us = 0;
  double first_us = 0;

  bool operator==(const ConvolutionPlan&) const = default;

  // Returns whether both plans use the same engine with the same knobs. The measured times of the plans may differ.
  bool RunsAs(const ConvolutionPlan& other) const {
    return engine == other.engine && knobs == other.knobs;
  }
};

// TextOf() converts a plan to a text such as "engine 62 knobs 2:4,13:0 workspace 0 us 80.125 first 90.250", and
// ParseConvolutionPlan() converts such a text back to a plan. ParseConvolutionPlan() returns nullopt if the text is not
// a plan.
std::string TextOf(const ConvolutionPlan& plan);
std::optional<ConvolutionPlan> ParseConvolutionPlan(const std::string& text);

}  // namespace lockstep::ops
