#include "ops/plan/convolution_plan.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <sstream>

namespace lockstep::ops {

std::string_view NameOf(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kInputGradient:
      return "input gradient";
    case ConvolutionPass::kWeightGradient:
      return "weight gradient";
    case ConvolutionPass::kForward:
      break;
  }
  return "forward";
}

std::string Description(const ConvolutionKey& key) {
  return fmt::format("{} of {}x{}x{}x{} by {}x{}x{}x{} stride {} padding {} {}", NameOf(key.pass),
                     key.count, key.inputs, key.height, key.width, key.outputs, key.inputs,
                     key.kernel_height, key.kernel_width, key.stride, key.padding,
                     key.type == FloatType::kFloat16 ? "f16" : "bf16");
}

std::string TextOf(const ConvolutionPlan& plan) {
  std::string knobs;
  for (const auto& [type, value] : plan.knobs) {
    knobs += fmt::format("{}{}:{}", knobs.empty() ? "" : ",", type, value);
  }
  return fmt::format("engine {} knobs {} workspace {} us {:.3f} first {:.3f}", plan.engine,
                     knobs.empty() ? "-" : knobs, plan.workspace_bytes, plan.us, plan.first_us);
}

std::optional<ConvolutionPlan> ParseConvolutionPlan(const std::string& text) {
  ConvolutionPlan plan;
  char knobs[512];
  constexpr int kFields = 5;
  const int fields = std::sscanf(
      text.c_str(), "engine %" SCNd64 " knobs %511[-0-9:,] workspace %" SCNd64 " us %lf first %lf",
      &plan.engine, knobs, &plan.workspace_bytes, &plan.us, &plan.first_us);
  if (fields != kFields) return std::nullopt;
  std::istringstream choices(knobs);
  for (std::string choice; std::getline(choices, choice, ',');) {
    int64_t type = 0;
    int64_t value = 0;
    if (std::sscanf(choice.c_str(), "%" SCNd64 ":%" SCNd64, &type, &value) == 2) {
      plan.knobs[type] = value;
    }
  }
  // The comparison with the whole text rejects any text that TextOf() would not write.
  if (TextOf(plan) != text) return std::nullopt;
  return plan;
}

}  // namespace lockstep::ops
