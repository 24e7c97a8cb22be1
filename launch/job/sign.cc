#include "launch/job/sign.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep {

std::string TextOf(Sign sign) {
  // Record separators (ISO 646), which no text has.
  return std::string("\x1elockstep:") + static_cast<char>(sign) + '\x1e';
}

void Give(Sign sign) {
  if (std::getenv(kJobName) == nullptr) return;
  const std::string text = TextOf(sign);
  // One that cannot be written would come to nothing, too: nobody supervises any more.
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace lockstep
