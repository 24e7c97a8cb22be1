// Format: the interface to a data format, such as CSV, MNIST or images. A Format checks the config's fields for its
// format and opens the data.
//
// To add a format, add a value with a comment to Data.Format in config/schema/data.proto, a file to this folder, and a
// line to config/formats/formats.inc. The file has a class that derives from Format, and a function that creates an
// object of that class:
//
//   class Parquet : public Format { ... };
//   std::unique_ptr<const Format> NewParquet() { return std::make_unique<Parquet>(); }
//
// If the format has options of its own, add a message for them to data.proto, and a field of Data whose name is the
// format's name in lower case. Configs with another format that set these options are then refused. The code that reads
// the files belongs in a folder of data/, which does not depend on the config.
//
// what can fail -> what the caller sees -> the test that shows it (config/config_test.cc)
//   the format cannot be opened with this config -> Error (kUsage) with the field's position in the file
//     -> PointsAtImpossibleCombinations, ...Tables
//   files that are damaged, or of another format -> Error (kData) from the reader in data/
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/formats/datasets.h"
#include "config/schema/config.pb.h"
#include "config/schema/field_check.h"
#include "data/dataset/dataset.h"
#include "data/dataset/split.h"

namespace lockstep {

class MemoryBudget;

// The kinds of input that a sample can have.
enum class SampleKind {
  kNumbers,  // float32 of any shape
  kPixels,   // uint8 [channels, height, width]
  kTokens,   // int64 [tokens]; the target of each token is the next token
  kTexts,    // int64 [tokens] or [inputs, tokens]; one target for the whole text
};

// The arguments with which the files of a format are opened.
struct OpenRequest {
  const config::Config& config;
  // The files of data.train or data.validation, or other files of the same format.
  std::vector<std::string> files;
  // The properties of the samples that are known in advance. The shape is empty and the number of classes is 0 if they
  // are unknown.
  SampleSpec expected;
  bool label_optional = false;           // whether labels may be missing, as in prediction
  std::shared_ptr<MemoryBudget> budget;  // memory for data.images.cache; null: no cache
  const Datasets& datasets;
  at::Device device;  // the device of this rank
  int cores = 1;      // the number of CPU cores of this rank
};

// The opened training files.
struct TrainingFiles {
  std::shared_ptr<const Dataset> samples;
  // The division into training and held-back samples, if the format had to make it in order to open the files;
  // otherwise the caller makes it (config/formats/division.h).
  std::optional<Split> split{};
};

class Format {
 public:
  // The names of a data set's two files in error messages, such as "images" and "labels".
  struct FilePair {
    const char* inputs;
    const char* targets;
  };

  Format() = default;
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;
  virtual ~Format() = default;

  // Returns the kind of input that the samples have with these options.
  virtual SampleKind kind(const config::Data&) const { return SampleKind::kNumbers; }

  // Returns whether files of this format can hold targets of this task. By default files can hold one class for each
  // sample.
  virtual bool Has(config::Data::Task task) const { return task == config::Data::CLASSIFICATION; }

  // Returns whether the config must name training files.
  virtual bool needs_files() const { return true; }

  // Returns the names of the two files if a data set consists of exactly two files or folders, and otherwise nothing.
  virtual std::optional<FilePair> pair(const config::Data&) const { return std::nullopt; }

  // Returns the noun, such as "file" or "folder", for an entry of data.train or data.validation in error messages.
  virtual std::string_view Noun(const std::string& /*file*/) const { return "file"; }

  // Returns the reason why the existing `file` cannot be used; empty if `file` can be used. By default `file` must be a
  // regular file.
  virtual std::string WhyNot(const std::string& file, mode_t mode) const;

  // Checks that the config fits the format. If it does not, throws Error (kUsage) with check.Fail().
  virtual void Check(const FieldCheck& /*check*/) const {}

  // Opens files of this format. Throws Error (kData, kUsage).
  virtual std::shared_ptr<const Dataset> Open(const OpenRequest& request) const = 0;

  // Opens the training files. Stores in `found` (the data section of the config) the values that are needed to read
  // other files of the run. By default there are no such values. Throws Error (kData, kUsage).
  virtual TrainingFiles OpenForTraining(const OpenRequest& request, config::Data& found) const;

  // Returns for each of `columns` the text that each sample has there. `field` is the config field or option that names
  // the columns, for error messages. Throws Error (kData). By default a format has no columns, and ReadColumns() throws
  // BugError, because a config that names a column for such a format is refused earlier.
  virtual std::vector<std::vector<std::string>> ReadColumns(const OpenRequest& request,
                                                            const std::vector<std::string>& columns,
                                                            std::string_view field) const;

  // Returns a text such as "MNIST takes two files: images, labels". May be called only if pair() returns names.
  std::string PairText(const config::Data& data) const;

  // Sets in `spec` the known properties of the samples other than shape, classes, task and kind.
  virtual void Describe(const config::Data&, SampleSpec& /*spec*/) const {}

 protected:
  // Returns the path of the file of the targets, for a format whose data sets consist of two files. Returns an empty
  // path if the user did not give this file and the request's labels are optional. Throws Error (kUsage).
  std::string TargetsFile(const OpenRequest& request) const;
};

// Returns the name of the format of `data` in a config, such as "CSV".
const std::string& FormatName(const config::Data& data);

}  // namespace lockstep
