// Computes the 64-bit hash XXH3 of a text, or of bytes that come in pieces.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

inline uint64_t Xxh3Of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

class Xxh3 {
 public:
  Xxh3() { XXH3_64bits_reset(&state_); }

  void Add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace lockstep
