// Signs: messages from a job's rank 0 to the process that supervises the job.
//
// Signs are written to standard error, between control characters, because only standard error reaches the supervisor
// through every launcher and from every machine. launch/job/relay.h removes the signs from the output.
#pragma once

#include <string>

namespace lockstep {

enum class Sign : char {
  kMet = 'm',     // all ranks have met, and have handlers for SIGUSR2
  kTrains = 't',  // the job trains, so from now on work is lost if it is not saved
  kLeaves = 'l',  // the job is done, or stopped as it was asked to
};

// Returns the text that represents the sign.
std::string TextOf(Sign sign);

// Writes the sign, if this process belongs to a supervised job (launch/job/supervised_job.h).
void Give(Sign sign);

// An environment variable of a supervised job. It holds the name of the job, which no other job has. When the ranks
// have met, the lock of the run folder holds this name, too.
inline constexpr char kJobName[] = "LOCKSTEP_JOB";

}  // namespace lockstep
