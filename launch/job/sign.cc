#include "launch/job/sign.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep {

std::string TextOf(Sign sign) {
  // The separator \x1e is the control character RS (ISO 646), which ordinary text does not contain.
  // It ends with a newline because Open MPI 5 forwards the text of a line only when the line is complete.
  return std::string("\x1elockstep:") + static_cast<char>(sign) + "\x1e\n";
}

void Give(Sign sign) {
  if (std::getenv(kJobName) == nullptr) return;
  const std::string text = TextOf(sign);
  // A failed write is ignored: it means that the supervisor has ended, so nobody needs the sign.
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace lockstep
