// Format: the interface to a format of data, such as CSV, MNIST or images. It checks the config's fields for this
// format and opens the data.
//
// A new format needs a value of Data.Format in trainer/config/schema/data.proto, with a comment, and a file in this
// folder. The file has a class that derives from Format, and a line that registers the class:
//
//   class Parquet : public Format { ... };
//   const RegisteredFormat<Parquet> kParquet(config::Data::PARQUET);
//
// If the format has options of its own, add a message for them to data.proto, and a field of Data that has the format's
// name in small letters. The program then refuses these options for any other format. The code that reads the files
// belongs in a folder of data/, which does not depend on the config.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/config/config_test.cc)
//   a config that the format cannot be opened with -> Error (kUsage) with the field's place -> PointsAtImpossibleCombinations, ...Tables
//   files that are damaged, or of another kind     -> Error (kData), as the reader of data/ says it
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/config/schema/field_check.h"
#include "trainer/formats/datasets.h"

namespace lockstep {

class MemoryBudget;

// What a sample's input consists of.
enum class SampleKind {
  kNumbers,  // float32 of any shape
  kPixels,   // uint8 [channels, height, width]
  kTokens,   // int64 [tokens]
};

// What a data set is opened from.
struct OpenRequest {
  const config::Config& config;
  std::vector<std::string> files;  // of data.train or data.validation, or others of the same format
  // What is known of the samples; a shape or classes that are not known are empty or 0.
  SampleSpec expected;
  bool label_optional = false;           // as for predictions
  std::shared_ptr<MemoryBudget> budget;  // of data.images.cache; null: nothing is kept
  const Datasets& datasets;
  at::Device device;  // this rank's
  int cores = 1;      // this rank's
};

class Format {
 public:
  // The two files that a format takes, in words.
  struct FilePair {
    const char* inputs;
    const char* targets;
  };

  Format() = default;
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;
  virtual ~Format() = default;

  // What the samples consist of, with these options.
  virtual SampleKind kind(const config::Data&) const { return SampleKind::kNumbers; }

  // Whether its files can hold targets of this task. By default they hold classes.
  virtual bool Has(config::Data::Task task) const { return task == config::Data::CLASSIFICATION; }

  // Whether training needs files.
  virtual bool needs_files() const { return true; }

  // Set where each data set is exactly two files.
  virtual std::optional<FilePair> pair() const { return std::nullopt; }

  // What data.train and data.validation name: a "file", say.
  virtual std::string_view Noun(const std::string& /*file*/) const { return "file"; }

  // Why `file`, which exists, is not what the format takes; empty: it is. By default it has to be a plain file.
  virtual std::string WhyNot(const std::string& file, mode_t mode) const;

  // Throws Error (kUsage), by check.Fail(), where the config does not fit.
  virtual void Check(const FieldCheck& /*check*/) const {}

  // Throws Error (kData, kUsage).
  virtual std::shared_ptr<const Dataset> Open(const OpenRequest& request) const = 0;

  // Opens the training files, and writes to `found`, which is the config's data, what other files of the run need to
  // know of them. By default that is nothing. Throws Error (kData, kUsage).
  virtual std::shared_ptr<const Dataset> OpenForTraining(const OpenRequest& request,
                                                         config::Data& found) const;

  // Adds to `spec` what is known of the samples besides shape, classes, task and kind.
  virtual void Describe(const config::Data&, SampleSpec& /*spec*/) const {}

 protected:
  // Of a format with a pair of files: the targets' file; empty: it was left out, as it may be where the request's
  // labels are optional. Throws Error (kUsage).
  std::string TargetsFile(const OpenRequest& request) const;
};

// The format of `data`. Throws BugError where no file of this folder registers it.
const Format& FormatOf(const config::Data& data);

// The name of the format of `data` as a config has it: "CSV".
const std::string& FormatName(const config::Data& data);

// "MNIST takes two files: images, labels", for a format with a pair.
std::string PairText(const config::Data& data, const Format::FilePair& pair);

bool HoldsTokens(const config::Data& data);
bool HoldsPixels(const config::Data& data);

// Makes a format known. For RegisteredFormat.
void RegisterFormat(config::Data::Format value, std::unique_ptr<const Format> format);

template <typename F>
class RegisteredFormat {
 public:
  explicit RegisteredFormat(config::Data::Format value) {
    RegisterFormat(value, std::make_unique<const F>());
  }
};

}  // namespace lockstep
