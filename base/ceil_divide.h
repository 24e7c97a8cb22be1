// Whole numbers that are divided, or made multiples, by rounding up. For kernels, too.
#pragma once

#include <concepts>

namespace lockstep {

// The least whole number that is not below n / k, of n > -k and k > 0. It is computed in the type of n + k, which must
// hold n + k - 1.
template <std::integral N, std::integral K>
constexpr auto CeilDivide(N n, K k) {
  return (n + k - 1) / k;
}

// The least multiple of `multiple` that is not below n; of the same numbers.
template <std::integral N, std::integral Multiple>
constexpr auto RoundUp(N n, Multiple multiple) {
  return CeilDivide(n, multiple) * multiple;
}

}  // namespace lockstep
