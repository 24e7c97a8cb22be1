// Finds the known name that a user most likely meant when he mistyped a name.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the candidate that the fewest typing slips (a letter too many, too few, wrong, or
// exchanged with its neighbour) turn `name` into, ignoring case, the first of several; empty when
// there are no candidates or every one of them needs more slips than half its letters.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// Returns `; did you mean "x"?`, or nothing where no candidate is near: the tail of an error line.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace lockstep
