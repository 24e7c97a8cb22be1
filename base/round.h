// Rounds numbers for a log or a table.
#pragma once

#include <cmath>

namespace lockstep {

// Rounds `value` to `places` decimal places.
inline double Round(double value, int places) {
  const double scale = std::pow(10, places);
  return std::round(value * scale) / scale;
}

}  // namespace lockstep
