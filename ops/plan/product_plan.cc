#include "ops/plan/product_plan.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>

namespace lockstep::ops {
namespace {

const char* Name(FloatType type) {
  switch (type) {
    case FloatType::kFloat16:
      return "f16";
    case FloatType::kBFloat16:
      return "bf16";
    default:
      return "f32";
  }
}

const char* OrderName(bool by_columns) { return by_columns ? "columns" : "rows"; }

}  // namespace

std::string Description(const ProductKey& key) {
  return fmt::format("{}x{}x{} a={}/{} b={}/{} to={} {}>{} {}", key.m, key.n, key.k,
                     OrderName(key.a_by_columns), key.a_stride, OrderName(key.b_by_columns),
                     key.b_stride, key.to_stride, Name(key.input), Name(key.output),
                     key.adds       ? "adds"
                     : key.has_bias ? "bias"
                                    : "sets");
}

std::string TextOf(const ProductPlan& plan) {
  std::string text;
  for (const uint64_t word : plan.algorithm) text += fmt::format("{:016x}", word);
  return text + fmt::format(" {} {:.3f} {:.3f}", plan.workspace_bytes, plan.us, plan.first_us);
}

std::optional<ProductPlan> ParseProductPlan(const std::string& text) {
  ProductPlan plan;
  auto& words = plan.algorithm;
  constexpr int kFields = 11;
  const int fields =
      std::sscanf(text.c_str(),
                  "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64
                  "%16" SCNx64 "%16" SCNx64 " %" SCNd64 " %lf %lf",
                  &words[0], &words[1], &words[2], &words[3], &words[4], &words[5], &words[6],
                  &words[7], &plan.workspace_bytes, &plan.us, &plan.first_us);
  if (fields != kFields || TextOf(plan) != text) return std::nullopt;
  return plan;
}

}  // namespace lockstep::ops
