// Signs: messages from a job's ranks to the process that supervises the job. All but kSilence are of rank 0.
//
// A sign is written to standard error, between two control characters, and ends with a newline. Standard error is used
// because every launcher passes it on to the supervisor, from every machine; a pipe or a socket of our own would end at
// the border of the machine. launch/job/relay.h removes the signs, with their newlines, from the output.
#pragma once

#include <string>

namespace lockstep {

enum class Sign : char {
  kMet = 'm',     // all ranks have met, and have handlers for SIGUSR2
  kTrains = 't',  // the job has begun to train, so it has work that must be saved
  kLeaves = 'l',  // all ranks end together (Job::Leave()), and not because a single rank failed
  kSilence =
      's',  // the ranks end because one of them gives no sign of life: its machine may be gone
};

// Returns the text that represents the sign.
std::string TextOf(Sign sign);

// Writes the sign, if this process belongs to a supervised job (launch/job/supervised_job.h).
void Give(Sign sign);

// An environment variable of a supervised job. It holds the job's name, which is random, so that different jobs have
// different names. The lock file of the run folder holds the same name once the job has locked the folder
// (ckpt/run_lock.h).
inline constexpr char kJobName[] = "LOCKSTEP_JOB";

}  // namespace lockstep
