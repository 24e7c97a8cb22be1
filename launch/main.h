// Main(): runs Lockstep's whole command line in a program that adds models and data sets of its own.
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
//   a profiler that was preloaded or injected has not written its results when main() is done -> nothing is lost: End()
//     calls std::exit(), at which the profiler writes its results
//     -> tests/checkpoint_fault_test.py
//   HOME is not set, and Open MPI 5 would not start -> it is set, and nothing is printed
//     -> tests/start_test.py, tests/doctor_test.py
//   any Error -> one line and the error's exit status; if several ranks have the same error, the line is printed once
//     -> tests/bad_input_test.py
#pragma once

#include "config/formats/datasets.h"
#include "models/built_in/built_in.h"
#include "models/model.h"

namespace lockstep {

// Runs the command line and returns the exit status (docs/design.md, 'Starting and stopping').
int Main(int argc, char** argv, Models models, Datasets datasets = {});

// Ends the process with `status`, which Main() has returned, without running the destructors of static objects.
// LibTorch's destructors take 0.1 s of CPU time, and only free memory that the kernel frees anyway. If a profiler was
// preloaded or injected, this function calls std::exit() instead, because the profiler writes its results at exit.
[[noreturn]] void End(int status);

}  // namespace lockstep
