// The known name that a mistyped one most likely meant.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the candidate with the smallest Levenshtein distance to `name`, ignoring case, the first of
// several; empty when there are no candidates or every one of them differs in more than half its
// letters.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// Returns `; did you mean "x"?`, or nothing where no candidate is near: the tail of an error line.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace lockstep
