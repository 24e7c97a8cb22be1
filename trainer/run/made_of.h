// Fingerprints of what a run was made of, its data and its model's graph. Checkpoints keep them, so that a run goes on,
// and is evaluated, with what it began with.
//
// Promise: a changed label, feature, pixel or token, another order and another division of the samples are noticed
// before the first step if the format is read wholly when it is opened, or if the file system says that a file has
// changed; otherwise when the sample is read (data/dataset/sample_record.h). Copies with the same content are the same
// data, whatever their times and paths are. A file may change in what no sample depends on. Nothing is said of what an
// older program has not kept.
//
// what can fail -> what the caller sees -> the test that shows it (tests/made_of_test.py)
//   training or validation samples that have changed -> Error (kUsage; kData if there are more or fewer) that names the
//     file and what differs
//   a checkpoint of another run (--from) with other validation samples -> a line in RunStart::differences, and what
//     early stopping has seen is forgotten
//   held-back samples that are not those of the training, when a run is evaluated or predicts them -> a remark
//     (use/trained_run.h)
//   another graph in the model's file -> Error (kUsage) that names the file and what differs
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/manifest.pb.h"
#include "comm/communicator.h"
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "models/model.h"
#include "trainer/run/open_data.h"

namespace lockstep {

// The names of the sets of samples.
inline constexpr char kTrainingSet[] = "training";
inline constexpr char kValidationSet[] = "validation";

// Returns what `samples`, the set with this name of a run with `config`, are made of.
checkpoint::DataSet DataSetOf(const char* name, const config::Data& config, const Dataset& samples);

// Returns what both sets of samples are made of, and how the training samples are drawn.
std::vector<checkpoint::DataSet> DataSetsOf(const config::Data& config, const TrainingData& data);

// Returns a line for each part of the samples, which must be the same on all ranks.
std::vector<std::string> LinesOf(const std::vector<checkpoint::DataSet>& sets);

// Returns a line that says in which file the set `is` differs from the set `was`, and how: "train.csv: the labels have
// changed"; empty if it is the same. `columns_differ` says that the statistics of the columns differ.
std::string WhatDiffers(const checkpoint::DataSet& was, const checkpoint::DataSet& is,
                        bool columns_differ = false);

// Returns whether both sets hold the same samples in the same order, whether it is the files or the config that makes
// them others.
bool HaveSameSamples(const checkpoint::DataSet& was, const checkpoint::DataSet& is);

// Returns the set with the name `name`; null if there is none.
const checkpoint::DataSet* SetNamed(
    const std::string& name, const google::protobuf::RepeatedPtrField<checkpoint::DataSet>& sets);

// The records of the samples of a run, which its checkpoints hold.
class SampleRecords {
 public:
  SampleRecords(const Dataset& train, const Dataset* validation);

  // Returns the hashes of all samples that any rank has read. Every rank must call it.
  std::vector<NamedTensor> Merged(Communicator& host);

  // Takes the hashes of the file `path` (SamplesFile() in ckpt/saver.h), which a checkpoint of the Unix time `time`
  // holds, and reads the samples again whose files have changed since. Call it before the first sample is read. Throws
  // Error (kCheckpoint), and what SampleRecord::VerifyChanged() throws.
  void Resume(const std::string& path, double time, int rank, int ranks);

  // Returns a line about the samples that this process has read since the records were made, and that have other hashes
  // in the file `path`, as Resume() takes it; empty if there are none. Throws Error (kCheckpoint).
  std::string WhatDiffers(const std::string& path) const;

 private:
  // Calls visit(record, its hashes) for each record of which the file `path` has hashes.
  template <typename Visit>
  void VisitSaved(const std::string& path, const Visit& visit) const;

  std::map<std::string, std::shared_ptr<SampleRecord>> records_;  // by the tensors' names
};

// Returns Model::Graph() as one text: "training=0123456789abcdef evaluation=..."; empty for a model without a file.
std::string GraphText(const Model& model);

// Throws Error (kUsage) if `model`, which `config` names, computes another graph than the one that `text`, the
// GraphText() of the weights `weights`, is of. `way_out` says what to do instead of putting the file back; it may be
// empty.
void RequireSameGraph(const config::Config& config, const Model& model, const std::string& text,
                      const std::string& weights, const std::string& way_out);

}  // namespace lockstep
