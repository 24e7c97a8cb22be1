// Train(): trains the model of a config on all ranks, from start to end.
//
// what can fail -> what the caller sees -> the test that shows it (tests/bad_input_test.py)
//   data, model or config that do not fit together -> the same Error on every rank, before the first step
//     -> test_unknown_model, test_bad_csv, ...
//   loss or gradient are not finite -> Error (kUsage) on every rank, with the step
//     -> test_a_loss_that_is_not_finite, and tests/precision_test.py
//   a rank throws in the first step -> the rank's error on every rank -> test_a_rank_that_throws
//   a rank throws later -> options.leave() ends its process, and the other ranks end, too
//     -> tests/fault_test.py, test_a_rank_that_throws
//   a checkpoint cannot be written -> the log says so, and the run goes on; for the last checkpoint, Error
//     (kCheckpoint) on every rank -> tests/checkpoint_fault_test.py, test_a_disk_that_fails
//   the run folder belongs to another run, or differs between machines -> see trainer/run/run_folder.h,
//     tests/resume_test.py, test_machines_that_share_no_disk
//   the checkpoint to begin from is missing or damaged, or was made with other data -> Error (kCheckpoint, kData)
//     on every rank -> tests/resume_test.py, test_from_what_cannot_be_gone_on_from
#pragma once

#include "config/schema/config.pb.h"
#include "trainer/run/stopping.h"
#include "trainer/run/train_options.h"
#include "trainer/step/world.h"

namespace lockstep {

// Trains the model of `config`, and writes the run into the folder config.run_dir. If that folder has a checkpoint,
// continues from the newest one. Returns kNone when the run has ended. If a rank is asked to stop, commits the state
// and returns the request. Every rank must call Train(), and every rank gets the same result. Throws Error.
StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options);

}  // namespace lockstep
