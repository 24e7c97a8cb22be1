// What a user asks of a run: about its checkpoints, and of the job that trains it.
#pragma once

#include <string>

namespace lockstep {

// Prints a line for each, the newest first: step, bytes, ranks that wrote it, metrics of the evaluation
// before it. Throws Error (kCheckpoint) where there are none.
void PrintCheckpoints(const std::string& run_dir);

// Reads all bytes of all and prints a line for each. Throws Error (kCheckpoint) where one is damaged, or
// there are none.
void VerifyCheckpoints(const std::string& run_dir);

// Has the job that trains in the folder save its state, and returns once that is committed; prints its path.
// Throws Error (kUsage) where none trains there, (kCheckpoint) where it could not.
void RequestCheckpoint(const std::string& run_dir);

// Has the job that trains in the folder save its state and end, and returns once it has; prints the checkpoint's path.
// Throws Error (kUsage) where none trains there.
void RequestStop(const std::string& run_dir);

}  // namespace lockstep
