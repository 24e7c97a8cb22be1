// Gives the current time, and the time when this process began. With the start time, Lockstep can report durations that
// begin when the user started the command.
#pragma once

namespace lockstep {

// Returns the time of CLOCK_BOOTTIME in seconds. All processes of a machine have the same clock.
double SecondsSinceBoot();

// Returns the Unix time in seconds. The times of two machines are comparable only as far as the machines' clocks agree.
double UnixSeconds();

// Returns the CPU time that the calling thread has used, in seconds.
double ThreadCpuSeconds();

// Returns the time when this process was started, in seconds on the clock of SecondsSinceBoot(). The resolution is
// 10 ms, because /proc/self/stat has the time in ticks of 10 ms.
double ProcessStartSeconds();

}  // namespace lockstep
