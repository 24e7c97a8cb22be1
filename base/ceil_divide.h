// Divides whole numbers and rounds up, or rounds a whole number up to a multiple of another. CUDA kernels may use these
// functions, too.
#pragma once

#include <concepts>

namespace lockstep {

// Returns the smallest whole number that is not below n / k, for n > -k and k > 0. The result is computed in the type
// of n + k, in which n + k - 1 must not overflow.
template <std::integral N, std::integral K>
constexpr auto CeilDivide(N n, K k) {
  return (n + k - 1) / k;
}

// Returns the smallest multiple of `multiple` that is not below n. n and `multiple` must meet the conditions of
// CeilDivide() for n and k.
template <std::integral N, std::integral Multiple>
constexpr auto RoundUp(N n, Multiple multiple) {
  return CeilDivide(n, multiple) * multiple;
}

}  // namespace lockstep
