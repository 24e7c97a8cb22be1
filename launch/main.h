// Main(): runs Lockstep's whole command line in a program that adds its own models and data sets.
//
//   int main(int argc, char** argv) {
//     lockstep::Models models = lockstep::BuiltInModels();
//     models.Add<MyNet>("my_net");
//     lockstep::Datasets datasets;
//     datasets.Add<MyData>("my_data");
//     return lockstep::Main(argc, argv, models, datasets);
//   }
//
// what can fail -> what the user sees -> the test that shows it
//   a wrong command line -> one line and status 2 -> tests/cli_test.py
//   a tool that writes its results at the end -> it does, where it is preloaded -> tests/checkpoint_fault_test.py
//   any Error -> one line with its status; on the terminal once, however many ranks have it
//     -> tests/bad_input_test.py
#pragma once

#include "config/formats/datasets.h"
#include "models/built_in/built_in.h"
#include "models/model.h"

namespace lockstep {

// Runs the command line and returns the exit status (docs/design.md, 'Starting and stopping').
int Main(int argc, char** argv, Models models, Datasets datasets = {});

// Ends the process with the status that Main has returned, without the destructors of static objects: LibTorch's take
// 0.1 s of a core, and give back what the kernel takes anyway. A profiler that was preloaded or injected writes its
// results at the end, so beside one the process ends as others do.
[[noreturn]] void End(int status);

}  // namespace lockstep
