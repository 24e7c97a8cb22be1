// Gives the current time, and the time when this process began. With the start time, Lockstep can report durations that
// begin when the user started the command.
#pragma once

namespace lockstep {

// Returns the time of CLOCK_BOOTTIME in seconds. All processes of a machine have the same clock.
double SecondsSinceBoot();

// Returns the Unix time in seconds. The times of two machines are comparable only as far as the machines' clocks agree.
double UnixSeconds();

// Returns the seconds for which the calling thread has run on a core.
double ThreadCpuSeconds();

// Returns when this process was started, on the clock of SecondsSinceBoot, to 10 ms (/proc/self/stat).
double ProcessStartSeconds();

}  // namespace lockstep
