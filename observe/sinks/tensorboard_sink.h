// TensorBoardSink: writes a run's figures as TensorBoard's event files, into RUN/tensorboard.
//
// docs/observe.md lists the tags. They are Lightning's and Composer's names where these have one.
//
// Invariants:
//   1. Each process of the run writes a file of its own. If the run goes on from step N, the file begins with a
//      SessionLog START of step N + 1, for which TensorBoard forgets the later steps of the files before.
//   2. Values that belong to no step of their own (the machine's) have the number of the last step.
//
// what can fail -> what the caller sees -> the test that shows it (tests/observe_sinks_test.py)
//   the folder cannot be written, the disk is full -> one warning; the figures follow when it can
//     -> test_a_sink_that_fails_changes_nothing
#pragma once

#include <memory>
#include <string>

#include "observe/run_event.h"

namespace lockstep {

// Of rank 0. `optimizer`: its class's name in PyTorch, for the learning rate's tag.
std::unique_ptr<EventSink> NewTensorBoardSink(const std::string& run_dir,
                                              const std::string& optimizer);

}  // namespace lockstep
