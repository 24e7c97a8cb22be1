// Gives the current time, and the time when this process began. Some figures count from the moment when the user
// pressed Enter.
#pragma once

namespace lockstep {

// Returns the time of CLOCK_BOOTTIME in seconds. All processes of a machine have the same clock.
double SecondsSinceBoot();

// Returns the Unix time in seconds. Between machines it is as accurate as their clocks are set.
double UnixSeconds();

// Returns the seconds for which the calling thread has run on a core.
double ThreadCpuSeconds();

// Returns when this process was started, on the clock of SecondsSinceBoot, to 10 ms (/proc/self/stat).
double ProcessStartSeconds();

}  // namespace lockstep
