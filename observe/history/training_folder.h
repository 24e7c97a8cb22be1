// KindOf(): says whether a folder is that of a run, that of a cross-validation, or neither. All commands that take
// folders ask this function, so they agree on what a folder is.
//
// Layout: a run folder has the run's log.jsonl or lock. `lockstep train CONFIG --folds 5` trains the runs RUN/fold-0 to
// RUN/fold-4, and RUN/crew.json (observe/history/crew_file.h) lists these folds before the first of them begins. RUN
// itself has no config, log or weights of its own. A fold may also be a job of its own (`data.folds.fold`); then there
// is no crew.json.
//
// A 'training' in the names below is a run or a cross-validation.
//
// what can fail -> what the caller sees -> the test that shows it (observe/history/training_folder_test.cc)
//   the folder is of neither kind -> KindOf() is kOther, and RequireTraining() throws Error (kUsage)
//     -> FolderKinds.EachFolderHasOne, TrainingFolder.IsRequired
//   a cross-validation is given where one run is needed -> RefuseFolds() throws Error (kUsage), which names a fold
//     -> TrainingFolder.IsRequired
//   no fold has begun yet -> FoldFolders() has the folders in which the folds will be -> TrainingFolder.NamesAllFolds
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

enum class FolderKind { kOther, kRun, kCrossValidation };

// Returns the kind of the folder `path`; kOther if there is no such folder. A folder with only a config is not a run
// folder, because users may keep their configs in such folders.
FolderKind KindOf(const std::string& path);

// Returns whether a job trains in the folder of a run or of a cross-validation now.
bool HasJob(const std::string& path);

// Returns the folder of a fold of the cross-validation in `path`.
std::string FoldRunDir(const std::string& path, int64_t fold);

// Returns the folders of all folds of the cross-validation in `path`, in the order of their numbers. A fold that has
// not begun may have no folder yet.
std::vector<std::string> FoldFolders(const std::string& path);

// Returns the folders of the runs that a training consists of: `path` itself, or those of FoldFolders().
std::vector<std::string> RunFoldersOf(const std::string& path);

// Throws Error (kUsage) if `path` is neither the folder of a run nor that of a cross-validation.
void RequireTraining(const std::string& path);

// Throws Error (kUsage), which names a fold, if `path` is the folder of a cross-validation: what the caller wants to do
// needs one run.
void RefuseFolds(const std::string& path);

// Throws Error (kUsage) if the folder `path` holds a run, or anything else than folds and the files of their job.
void RequireRoomForFolds(const std::string& path);

// Throws Error (kUsage) if `path` is not a run folder.
void RequireRunFolder(const std::string& path);

// Returns the folders of the runs and cross-validations that lie directly in `folder`, in no particular order. Throws
// Error (kUsage) if `folder` is not a folder that can be read.
std::vector<std::string> TrainingsIn(const std::string& folder);

// Returns the config that a run has saved in `run_dir`. If it cannot be read, or a newer version wrote it, sets `why`
// to the reason.
config::Config SavedConfig(const std::string& run_dir, std::string& why);

}  // namespace lockstep
