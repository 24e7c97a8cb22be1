// The whole command line, for a program that brings its own models.
//
//   int main(int argc, char** argv) {
//     lockstep::Models models = lockstep::BuiltInModels();
//     models.Add<MyNet>("my_net");
//     return lockstep::Main(argc, argv, models);
//   }
//
// what can fail -> what the user sees -> the test that shows it
//   a wrong command line -> one line and status 2 -> tests/cli_test.py
//   any Error -> one line with its status; on the terminal once, however many ranks have it
//     -> tests/bad_input_test.py
#pragma once

#include "trainer/model.h"
#include "trainer/models/built_in.h"

namespace lockstep {

// Runs the command line and returns the exit status (docs/design.md, 'Starting and stopping').
int Main(int argc, char** argv, const Models& models);

}  // namespace lockstep
