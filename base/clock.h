// Gives the current time, and the time when this process began. Some figures count from the moment when the user
// pressed Enter.
#pragma once

namespace lockstep {

// Seconds of CLOCK_BOOTTIME now. Comparable between the processes of one machine.
double SecondsSinceBoot();

// Seconds of Unix time now. Comparable between machines, as well as their clocks are set.
double UnixSeconds();

// Seconds that the calling thread has been on a core.
double ThreadCpuSeconds();

// When this process was started, on the clock of SecondsSinceBoot, to 10 ms (/proc/self/stat).
double ProcessStartSeconds();

}  // namespace lockstep
