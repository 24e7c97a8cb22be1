// Holds back signals that come before main() begins.
//
// A program that links LibTorch needs a third of a second to load LibTorch. A signal that asks a run to stop would end
// the process if it came in that time. This code therefore blocks SIGUSR2, SIGTERM, SIGHUP and SIGINT before the
// constructor of the first library runs (.preinit_array, System V ABI).
#pragma once

#include <signal.h>

namespace lockstep {

// If a signal other than SIGUSR2 asks a job to stop while the job still starts, the job may go on with its start for
// kPatienceS seconds. If the job trains before this time is over, it stops in the regular way. If it does not train by
// then, it is ended.
inline constexpr unsigned kPatienceS = 5;

// Returns the signals that were blocked when the program was started.
const sigset_t& MaskAtStart();

// Unblocks the signals that were blocked before main(). A process that does not handle these signals calls this
// function; each of the signals then has its default effect.
void LetEarlySignalsCome();

}  // namespace lockstep
