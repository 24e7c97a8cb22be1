// The float types that the kernels in ops/ read and write.
#pragma once

namespace lockstep::ops {

enum class FloatType { kFloat32, kFloat16, kBFloat16 };

// Returns the number of values of this type in a pack of 16 bytes.
inline int ChannelsOfPack(FloatType type) { return type == FloatType::kFloat32 ? 4 : 8; }

}  // namespace lockstep::ops
