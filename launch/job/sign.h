// Signs: messages from a job's rank 0 to the process that supervises the job.
//
// Signs are written to standard error, between control characters, because only standard error reaches the supervisor
// through every launcher and from every machine. launch/job/relay.h removes the signs from the output.
#pragma once

#include <string>

namespace lockstep {

enum class Sign : char {
  kMet = 'm',     // all ranks have met, and take SIGUSR2
  kTrains = 't',  // what comes now is lost if it is not saved
  kLeaves = 'l',  // the job is done, or stopped as it was asked to
};

// What is written for it.
std::string TextOf(Sign sign);

// Gives it, where this process is supervised (launch/job/supervised_job.h).
void Give(Sign sign);

// An environment variable that a supervised job finds: its name, which is no other's and which the run folder's lock has
// from when its ranks have met.
inline constexpr char kJobName[] = "LOCKSTEP_JOB";

}  // namespace lockstep
