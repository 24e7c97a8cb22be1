// ExamplesOf(): returns the examples for a command. The help text of each command ends with its examples.
#pragma once

#include <string>

namespace lockstep {

// Returns the examples of the command `name`, such as "bench step", as the command's help shows them: for each example
// a line that describes the example, and the command line. Returns an empty string if there are no examples.
// tests/completion_test.py shows that each command has examples, and that the program can parse them.
std::string ExamplesOf(const std::string& name);

}  // namespace lockstep
