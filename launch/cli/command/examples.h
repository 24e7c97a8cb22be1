// Examples for the commands. The help text of each command ends with its examples.
#pragma once

#include <string>

namespace lockstep {

// Returns the examples of the command `name` ("bench step") as its help shows them: for each example a line that
// describes it, and the command line. Returns an empty string if there are no examples. tests/completion_test.py shows
// that each command has examples, and that the program can parse them.
std::string ExamplesOf(const std::string& name);

}  // namespace lockstep
