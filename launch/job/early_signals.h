// Holds back signals that come before main() begins.
//
// A program that links LibTorch needs a third of a second to load it. In that time a signal that asks a run to stop
// would end the process. This code therefore blocks SIGUSR2, SIGTERM, SIGHUP and SIGINT before the constructor of the
// first library runs (.preinit_array, System V ABI).
#pragma once

#include <signal.h>

namespace lockstep {

// For so many seconds a job that was asked to stop (by another signal than SIGUSR2) may go on with its start. If it
// trains by then, it stops in the regular way; otherwise it ends at once.
inline constexpr unsigned kPatienceS = 5;

// The signals that were blocked when the program was started.
const sigset_t& MaskAtStart();

// Call it in a process that does not handle the held-back signals. Each signal then has its default effect.
void LetEarlySignalsCome();

}  // namespace lockstep
