// PrintableNumber(): a number as texts show it.
#pragma once

#include <cmath>

namespace lockstep {

// Returns `number`, or a positive NaN if it is NaN. Some processors give 0 / 0 a sign, and fmt prints the sign of a
// NaN, as in "-nan".
inline double PrintableNumber(double number) {
  return std::isnan(number) ? std::abs(number) : number;
}

}  // namespace lockstep
