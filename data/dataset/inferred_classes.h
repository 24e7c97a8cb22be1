// How many classes labels may ask for by themselves.
#pragma once

#include <cstdint>

namespace lockstep {

// More are taken for a mistake unless data.classes asks for them.
inline constexpr int64_t kMaxInferredClasses = 1'000'000;

}  // namespace lockstep
