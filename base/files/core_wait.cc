#include "base/files/core_wait.h"

#include <fcntl.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <span>

namespace lockstep {

CoreWait::CoreWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

CoreSeconds CoreWait::Read() const {
  // The file has three numbers: the nanoseconds on a core, the nanoseconds of waiting for a core, and the number of
  // time slices.
  std::array<char, 128> text{};
  const std::optional<size_t> size = ReadAt(file_, 0, std::as_writable_bytes(std::span(text)));
  if (!size) return {};
  const char* const end = text.data() + *size;
  int64_t computed_ns = 0, waited_ns = 0;
  const auto [after, error] = std::from_chars(text.data(), end, computed_ns);
  if (error != std::errc() || after == end) return {};
  std::from_chars(after + 1, end, waited_ns);
  constexpr double kNanosecond = 1e-9;
  return {.running = kNanosecond * static_cast<double>(computed_ns),
          .waiting = kNanosecond * static_cast<double>(waited_ns)};
}

}  // namespace lockstep
