// TensorBoardSink: writes a run's figures and histograms to event files of TensorBoard, in the folder RUN/tensorboard.
//
// docs/observe.md lists the tags. If PyTorch Lightning or Composer has a name for a figure, the figure's tag is that
// name.
//
// Invariants:
//   1. Each process of the run writes a file of its own. If the run is resumed from step N, the file begins with a
//      SessionLog START of step N + 1. When TensorBoard reads this record, TensorBoard drops the steps from N + 1 on
//      that earlier files have.
//   2. Readings of the machine, and the figures of SecondsReport, are written with the number of the last step.
//
// what can fail -> what the caller sees -> the test that shows it (tests/sinks_test.py)
//   the folder cannot be written, or the disk is full -> one warning; the figures wait until they can be written
//     -> test_a_sink_that_fails_changes_nothing
#pragma once

#include <memory>
#include <string>

#include "observe/run_event.h"

namespace lockstep {

// Returns the sink, which rank 0 needs. `optimizer` is the name of the optimizer's class in PyTorch, which is a part of
// the learning rate's tag.
std::unique_ptr<EventSink> NewTensorBoardSink(const std::string& run_dir,
                                              const std::string& optimizer);

}  // namespace lockstep
