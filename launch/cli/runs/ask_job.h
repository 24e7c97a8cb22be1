// Asks the job that trains in a run folder for something, by a file in the folder.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Makes the file `request`, whose content is `text`, and waits until the job has removed it, or has ended. Throws Error
// (kUsage) if no job trains there; `hint` is added to its message.
void AskJob(const std::string& run_dir, const std::string& request, std::string_view text = {},
            const std::string& hint = {});

}  // namespace lockstep
