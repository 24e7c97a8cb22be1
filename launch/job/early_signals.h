// Holds back signals that come before main() begins.
//
// A program that links LibTorch needs a third of a second to load it. In that time a signal that asks a run to stop
// would end the process. This code therefore blocks SIGUSR2, SIGTERM, SIGHUP and SIGINT before the constructor of the
// first library runs (.preinit_array, System V ABI).
#pragma once

#include <signal.h>

namespace lockstep {

// Seconds that a job that was asked to stop, by another signal than SIGUSR2, may take until it trains, and then stops.
inline constexpr unsigned kPatienceS = 5;

// The signals that were blocked when the program was started.
const sigset_t& MaskAtStart();

// To be called where nothing takes the signals that wait: each does what it does by default.
void LetEarlySignalsCome();

}  // namespace lockstep
