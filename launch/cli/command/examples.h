// Examples of the commands, which their help ends with.
#pragma once

#include <string>

namespace lockstep {

// Returns the examples of the command `name` ("bench step") as its help shows them: a line that says what the example
// does, and the command. Empty: there are none. tests/completion_test.py shows that each command has some, and that the
// program can parse them.
std::string ExamplesOf(const std::string& name);

}  // namespace lockstep
