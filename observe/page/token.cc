#include "observe/page/token.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace lockstep {

std::string NewToken() {
  std::array<uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw BugError("no random numbers for a token: {}", std::strerror(errno));
  }
  std::string token;
  for (const uint8_t byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool IsSameToken(std::string_view given, std::string_view token) {
  if (given.size() != token.size()) return false;
  // `volatile` keeps the compiler from leaving the loop at the first difference, so the time does not depend on the
  // token.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    difference = difference | static_cast<unsigned char>(given[i] ^ token[i]);
  }
  return difference == 0;
}

}  // namespace lockstep
