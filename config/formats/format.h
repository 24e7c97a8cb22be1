// Format: the interface to a format of data, such as CSV, MNIST or images. It checks the config's fields for this
// format and opens the data.
//
// A new format needs a value of Data.Format in config/schema/data.proto, with a comment, a file in this folder, and a
// line of config/formats/formats.inc. The file has a class that derives from Format, and the function that makes one:
//
//   class Parquet : public Format { ... };
//   std::unique_ptr<const Format> NewParquet() { return std::make_unique<Parquet>(); }
//
// If the format has options of its own, add a message for them to data.proto, and a field of Data that has the format's
// name in small letters. The program then refuses these options for any other format. The code that reads the files
// belongs in a folder of data/, which does not depend on the config.
//
// what can fail -> what the caller sees -> the test that shows it (config/config_test.cc)
//   the format cannot be opened with this config -> Error (kUsage) with the field's place
//     -> PointsAtImpossibleCombinations, ...Tables
//   files that are damaged, or of another kind     -> Error (kData), as the reader of data/ says it
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

// The kinds of elements that a sample's input consists of.
enum class SampleKind {
  kNumbers,  // float32 of any shape
  kPixels,   // uint8 [channels, height, width]
  kTokens,   // int64 [tokens], and the target is the token behind each one
  kTexts,    // int64 [tokens] or [inputs, tokens], and a target of the whole
};

// The arguments with which a data set is opened.
struct OpenRequest {
  const config::Config& config;
  // The files of data.train or data.validation, or other files of the same format.
  std::vector<std::string> files;
  // The facts that are known about the samples. If the shape is unknown, it is empty. If the number of classes is
  // unknown, it is 0.
  SampleSpec expected;
  bool label_optional = false;           // whether labels may be missing, as for predictions
  std::shared_ptr<MemoryBudget> budget;  // the memory for data.images.cache; null: nothing is kept
  const Datasets& datasets;
  at::Device device;  // the device of this rank
  int cores = 1;      // the number of this rank's cores
};

// The training files as they were opened.
struct TrainingFiles {
  std::shared_ptr<const Dataset> samples;
  // How the samples are divided, if the format had to know it to open the files; otherwise the caller divides them
  // (config/formats/division.h).
  std::optional<Split> split{};
};

class Format {
 public:
  // The names, in words, of the two files that a format takes.
  struct FilePair {
    const char* inputs;
    const char* targets;
  };

  Format() = default;
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;
  virtual ~Format() = default;

  // Returns what the samples consist of with these options.
  virtual SampleKind kind(const config::Data&) const { return SampleKind::kNumbers; }

  // Returns whether files of this format can hold targets of this task. By default they hold classes of samples.
  virtual bool Has(config::Data::Task task) const { return task == config::Data::CLASSIFICATION; }

  // Returns whether training needs files.
  virtual bool needs_files() const { return true; }

  // Returns a value if each data set consists of exactly two files, or folders.
  virtual std::optional<FilePair> pair(const config::Data&) const { return std::nullopt; }

  // Returns what data.train and data.validation name, such as "file".
  virtual std::string_view Noun(const std::string& /*file*/) const { return "file"; }

  // Returns the reason why `file`, which exists, cannot be used; empty if it can. By default it must be a plain file.
  virtual std::string WhyNot(const std::string& file, mode_t mode) const;

  // Throws Error (kUsage), with check.Fail(), if the config does not fit the format.
  virtual void Check(const FieldCheck& /*check*/) const {}

  // Opens files of this format. Throws Error (kData, kUsage).
  virtual std::shared_ptr<const Dataset> Open(const OpenRequest& request) const = 0;

  // Opens the training files. Writes the values that other files of the run need to `found`, the config's data. By
  // default there are no such values. Throws Error (kData, kUsage).
  virtual TrainingFiles OpenForTraining(const OpenRequest& request, config::Data& found) const;

  // Returns what the files' column `column` holds of each sample. `field` is who asks for it. By default there are no
  // columns, and the config that asks for one is refused. Throws Error (kData).
  virtual std::vector<std::string> ReadColumn(const OpenRequest& request, const std::string& column,
                                              std::string_view field) const;

  // Returns a text such as "MNIST takes two files: images, labels", for a format with a pair of files or folders.
  std::string PairText(const config::Data& data) const;

  // Adds to `spec` what is known about the samples, besides shape, classes, task and kind.
  virtual void Describe(const config::Data&, SampleSpec& /*spec*/) const {}

 protected:
  // For a format with a pair of files: returns the file of the targets. It is empty if the user left the file out,
  // which is allowed if the labels of the request are optional. Throws Error (kUsage).
  std::string TargetsFile(const OpenRequest& request) const;
};

// Returns the name of the format of `data` in a config, such as "CSV".
const std::string& FormatName(const config::Data& data);

}  // namespace lockstep
