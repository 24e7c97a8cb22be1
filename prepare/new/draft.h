// Drafts a config from the files that a user wants to train on. `lockstep new` writes it.
//
// Promise: `lockstep train` runs with the config as it stands; for masks, the user must first export a model. Each
// choice in it has a comment with the figure that was found. The draft depends on the files and the request alone.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   files of no known kind, or that cannot be trained on -> Error (kData, kUsage) with file, place and cure
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
  std::vector<std::string> labels{};  // the label columns of a table; empty: to be found
  std::string output =
      "train.pbtxt";   // the config that is to be written; paths in it count from its folder
  std::string test{};  // the test file that the user names; empty: to be found
  std::optional<LearnTask> task{};  // nothing: to be found
};

struct Draft {
  std::string config;              // its text
  std::vector<std::string> found;  // lines that say what was found
  std::vector<std::string> next;   // the next commands
  // A file that stands for the model's while the config is checked, if one of the next commands writes the model's;
  // empty: none does.
  std::string stand_in{};
};

// Throws Error (kData, kUsage).
Draft DraftConfig(const NewRequest& request);

// Draft the config for one kind of data each. Throw Error (kData, kUsage).
Draft DraftForTable(const FoundData& data, const NewRequest& request);
Draft DraftForImages(const FoundData& data, const NewRequest& request);
Draft DraftForMasks(const FoundData& data, const NewRequest& request);
Draft DraftForArrays(const FoundData& data, const NewRequest& request);
Draft DraftForTokens(const FoundData& data, const NewRequest& request);

// Helpers of these functions.

// "REGRESSION"
const char* NameOf(LearnTask task);
// "3 classes", "3 labels" or "3 numbers": what is learnt of a sample.
std::string CountOutputs(LearnTask task, int64_t outputs);

// Begins a config: says what it was written from.
void BeginConfig(const NewRequest& request, const std::string& what, ConfigText& config);

// Writes how many samples are held back, if no files are there to evaluate on: data.validation_fraction.
void WriteHeldBack(int64_t samples, double fraction, ConfigText& config);

// Writes data.standardize_targets.
void WriteStandardTargets(ConfigText& config);

// Writes everything but data and model: the batch, the optimizer, the schedule, the end, and the precision.
void WriteTraining(const Recipe& recipe, int64_t samples, ConfigText& config);

// The files of data.train and data.validation as the config names them.
void WriteFiles(const FoundData& data, const NewRequest& request, ConfigText& config);

// The command that trains, and the command that predicts or evaluates.
std::string TrainCommand(const NewRequest& request);
std::string PredictCommand(const NewRequest& request, const FoundData& data);
std::string EvaluateCommand(const NewRequest& request, const std::vector<std::string>& files);

}  // namespace lockstep
