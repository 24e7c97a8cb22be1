// The float types that the kernels of this folder read and write.
#pragma once

namespace lockstep::ops {

enum class FloatType { kFloat32, kFloat16, kBFloat16 };

// The number of values of this type in a pack of 16 bytes.
inline int ChannelsOfPack(FloatType type) { return type == FloatType::kFloat32 ? 4 : 8; }

}  // namespace lockstep::ops
