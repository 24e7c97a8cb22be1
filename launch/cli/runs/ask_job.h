// Sends a request to the job that trains in a run folder, by making a file in that folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Makes the file `request_of(folder)`, whose content is `text`, in each of `folders`, and waits until the job that
// trains in the folder has removed the file or has ended. Throws Error (kUsage) if no job trains in one of the folders.
// The message ends with `hint`.
void AskJobs(const std::vector<std::string>& folders,
             const std::function<std::string(const std::string& folder)>& request_of,
             std::string_view text = {}, const std::string& hint = {});

// Waits until no job trains in `folder`.
void WaitForEnd(const std::string& folder);

// Throws the Error (kUsage) that says that no job trains in `folder`. The message ends with `hint`.
[[noreturn]] void FailWithoutJob(const std::string& folder, const std::string& hint = {});

}  // namespace lockstep
