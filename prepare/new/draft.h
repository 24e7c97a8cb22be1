// Drafts a config from the files that a user wants to train on. `lockstep new` writes the config to a file.
//
// Promise: `lockstep train` runs with the config without changes; for masks, the user must first export a model. Many
// choices in the config have a comment with the reason, such as a fact about the data. The draft depends on nothing but
// the files and the request.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   files are of no known kind, or cannot be trained on -> Error (kData, kUsage) with file, place and remedy
//     -> test_mistakes_are_one_line
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prepare/new/config_text.h"
#include "prepare/new/find_data.h"
#include "prepare/new/names.h"
#include "prepare/new/recipe.h"
#include "prepare/new/table_plan.h"

namespace lockstep {

struct NewRequest {
  std::string data;                   // a file or a folder
  std::vector<std::string> labels{};  // the label columns of a table; empty: DraftConfig() chooses
  std::string output =
      "train.pbtxt";   // path of the config to write; paths in it are relative to its folder
  std::string test{};  // the user's test file; empty: DraftConfig() looks for one
  std::optional<LearnTask> task{};  // the user's task; nothing: DraftConfig() chooses
};

struct Draft {
  std::string config;              // the text of the config
  std::vector<std::string> found;  // lines that say what was found
  std::vector<std::string> next;   // commands that the user should run next
  // An existing file that takes the place of the model's file while the config is checked, if the model's file will not
  // exist until the user has run one of the commands in `next`; otherwise empty.
  std::string stand_in{};
};

// Drafts the config for request.data. Throws Error (kData, kUsage).
Draft DraftConfig(const NewRequest& request);

// Each of these functions drafts the config for one kind of data. Throws Error (kData, kUsage).
Draft DraftForTable(const FoundData& data, const NewRequest& request);
Draft DraftForImages(const FoundData& data, const NewRequest& request);
Draft DraftForMasks(const FoundData& data, const NewRequest& request);
Draft DraftForArrays(const FoundData& data, const NewRequest& request);
Draft DraftForTokens(const FoundData& data, const NewRequest& request);

// The functions below are helpers for DraftForTable() and the other DraftFor...() functions.

// Returns the task's name in a config, such as "REGRESSION".
const char* NameOf(LearnTask task);
// Returns the number of outputs in words: "3 classes", "3 labels" or "3 numbers".
std::string CountOutputs(LearnTask task, int64_t outputs);

// Begins a config with a comment that says from which data it was written.
void BeginConfig(const NewRequest& request, const std::string& what, ConfigText& config);

// Writes data.validation_fraction, for data without validation files.
void WriteHeldBack(int64_t samples, double fraction, ConfigText& config);

// Writes data.standardize_targets.
void WriteStandardTargets(ConfigText& config);

// Writes everything except data and model: the optimizer, the schedule, the batch, the epochs, early stopping and the
// precision.
void WriteTraining(const Recipe& recipe, int64_t samples, ConfigText& config);

// Writes data.train and data.validation.
void WriteFiles(const FoundData& data, const NewRequest& request, ConfigText& config);

// These functions return the command lines with which the user trains, predicts and evaluates.
std::string TrainCommand(const NewRequest& request);
std::string PredictCommand(const NewRequest& request, const FoundData& data);
std::string EvaluateCommand(const NewRequest& request, const std::vector<std::string>& files);

}  // namespace lockstep
