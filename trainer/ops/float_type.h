// The types that the kernels of this folder read and write.
#pragma once

namespace lockstep::ops {

enum class FloatType { kFloat32, kFloat16, kBFloat16 };

}  // namespace lockstep::ops
