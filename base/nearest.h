// Finds the known name that a user most likely meant when he mistyped a name.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the candidate that differs from `name` by the fewest typing errors (a letter too many, too few, wrong, or
// exchanged with the next letter), ignoring case. If several candidates have equally few errors, returns the first of
// them. A candidate is ignored if its number of errors is more than half the number of letters of `name` or of the
// candidate, whichever is longer. Returns an empty text if no candidate is left.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// Returns `; did you mean "x"?` for the end of an error message, or an empty text if no candidate is near.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace lockstep
