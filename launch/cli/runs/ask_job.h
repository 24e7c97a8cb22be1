// Sends a request to the job that trains in a run folder, by making a file in that folder.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Makes the file `request`, whose content is `text`, and waits until the job that trains in `run_dir` has removed the
// file or has ended. If no job trains in `run_dir`, throws Error (kUsage) whose message ends with `hint`.
void AskJob(const std::string& run_dir, const std::string& request, std::string_view text = {},
            const std::string& hint = {});

}  // namespace lockstep
