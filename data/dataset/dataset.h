// Dataset: the interface through which training reads samples by their number. Each data format has a class that
// implements this interface.
//
// Promise: size() and spec() never change. Many threads may call Read() at once. Read() gives the same bytes every time
// for the same index and epoch. A reader of a format checks the whole file when it opens the file, so a bad row is an
// error at the start of training and not hours later. Images and tokens are exceptions: they are checked only when
// Read() reads them (data/images/image_dataset.h, data/tokens/tokens.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/contents.h"

namespace lockstep {

class SampleRecord;  // data/dataset/sample_record.h

// The kinds of target that a sample can have.
enum class Task {
  kClassification,  // a class: int64 in [0, classes)
  kMultiLabel,      // for each label, 1 if the label applies and 0 if not: float32 [classes]
  kRegression,      // the numbers to predict: float32 [classes]
  kLanguage,        // the next token after each token of the input: int64 [tokens]
  kSegmentation,  // the class of each pixel: uint8 [height, width], in [0, classes) or kIgnoredPixel
};

// The target of a pixel that has no class. Such a pixel adds nothing to the loss or the metrics.
constexpr int64_t kIgnoredPixel = 255;

// A range of adjacent features.
struct FeatureRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct SampleSpec {
  // The shape of one input: {features}, {channels, height, width}, {tokens}, or {inputs, tokens} for a model that takes
  // several inputs.
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;  // kFloat, kByte for pixels in 0..255, kLong for tokens
  bool channels_last = false;  // whether an input's memory has the order {height, width, channels}
  int64_t classes = 0;         // the number of classes, labels or numbers that a model's output has
  // The names of the classes in the order of the labels; empty if the classes have no names.
  std::vector<std::string> class_names{};
  Task task = Task::kClassification;
  // For a table: the range of features of each category column, in ascending order. In each row at most one feature of
  // a range is not 0.
  std::vector<FeatureRange> categories{};
  // The mean and the standard deviation of each target column, if the targets are standardised: a target is (value in
  // the user's unit - mean) / std. Empty: targets are in the user's unit.
  std::vector<double> target_mean{};
  std::vector<double> target_std{};

  int64_t bytes() const;                      // the size of one input
  std::vector<int64_t> target_shape() const;  // the shape of one target
  at::ScalarType target_dtype() const;
  int64_t target_bytes() const;  // the size of one target
  int64_t targets() const;       // the number of elements of one target
};

// EmptyInputs() returns uninitialised memory for `count` inputs, [count, shape...], in the memory format that
// spec.channels_last asks for. EmptyTargets() returns uninitialised memory for `count` targets, [count,
// target_shape...]. `where` says on which device the memory is and whether it is page-locked.
at::Tensor EmptyInputs(const SampleSpec& spec, int64_t count, at::TensorOptions where);
at::Tensor EmptyTargets(const SampleSpec& spec, int64_t count, at::TensorOptions where);

// The seconds that all threads together have spent in Read() and ReadSome(), by activity. A data set that does not
// measure these times leaves them at 0.
struct ReadTimes {
  double files = 0;
  double decoding = 0;
  double resizing = 0;
  double gpu = 0;  // waiting for the GPU that decodes and resizes images

  ReadTimes operator-(const ReadTimes& other) const;
};

class Dataset {
 public:
  static constexpr int64_t kNoLabel = -1;

  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual const SampleSpec& spec() const = 0;

  // Writes spec().bytes() bytes of sample `index` to `input`, and spec().target_bytes() bytes to `target`. An unknown
  // class of a sample is written as kNoLabel, an unknown class of a pixel as kIgnoredPixel, and an unknown number as
  // NaN. If the data set augments samples at random, Read() gives a different variant of a sample in each `epoch`.
  virtual void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const = 0;

  // Writes the target of sample `index`, as Read() does, but not its input.
  virtual void ReadTarget(int64_t index, std::byte* target) const;

  // Reads the samples `indices`. Writes their inputs to `input` and their targets to `target`, in the order of
  // `indices` and without gaps. The bytes of each sample are those that Read() writes. Throws the exception of the
  // first sample that fails.
  virtual void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                        std::byte* target) const;

  // Returns how many samples the caller should read with one call of ReadSome(). If the number is more than 1, a device
  // such as a GPU makes the samples, and two threads that call ReadSome() are enough to keep this device busy.
  virtual int64_t samples_at_once() const { return 1; }

  // Returns a data set of the same samples without random augmentation, for evaluation. Returns null if Read() never
  // augments at random, or if this data set is a WrappedDataset.
  virtual std::shared_ptr<const Dataset> Plain() const { return nullptr; }

  // Returns the number of sample `index` among all samples of the files, from 0.
  virtual int64_t NumberInFiles(int64_t index) const { return index; }

  // Returns the path of the file of sample `index` within the folder or archive of the files, or an empty string if a
  // file holds more than one sample.
  virtual std::string FileOf(int64_t /*index*/) const { return ""; }

  // Returns one line for each sample that was replaced by another sample (data/dataset/skip_bad.h), with the reason. A
  // line that an earlier call returned is not returned again.
  virtual std::vector<std::string> TakeReports() const { return {}; }

  // Returns lines that tell the user how the data set interpreted the files, with the names of the files.
  virtual std::vector<std::string> Remarks() const { return {}; }

  // Returns the times that Read() and ReadSome() have taken so far.
  virtual ReadTimes times() const { return {}; }

  // Returns a text that differs between different data sets even if they have the same size and spec, so that Lockstep
  // notices if two ranks opened different data by mistake. Returns an empty string if the data set has no such text.
  virtual std::string Fingerprint() const { return ""; }

  // Returns fingerprints of what the data set has read of its files wholly.
  virtual DataContents Contents() const { return {}; }

  // Returns the records of the parts of samples that Read() reads from files, so that a run that goes on notices
  // changes of them.
  virtual std::vector<std::shared_ptr<SampleRecord>> Records() const { return {}; }
};

// A data set that is made from another data set, `whole`. Calls of size(), spec(), ReadTarget(), NumberInFiles(),
// FileOf(), TakeReports(), times(), Fingerprint(), Contents() and Records() are passed on to `whole`, unless the
// derived class overrides these functions.
class WrappedDataset : public Dataset {
 public:
  int64_t size() const override { return whole_.size(); }
  const SampleSpec& spec() const override { return whole_.spec(); }
  void ReadTarget(int64_t index, std::byte* target) const override {
    whole_.ReadTarget(index, target);
  }
  int64_t NumberInFiles(int64_t index) const override { return whole_.NumberInFiles(index); }
  std::string FileOf(int64_t index) const override { return whole_.FileOf(index); }
  std::vector<std::string> TakeReports() const override { return whole_.TakeReports(); }
  ReadTimes times() const override { return whole_.times(); }
  std::string Fingerprint() const override { return whole_.Fingerprint(); }
  DataContents Contents() const override { return whole_.Contents(); }
  std::vector<std::shared_ptr<SampleRecord>> Records() const override { return whole_.Records(); }

 protected:
  // Keeps a reference to `whole`.
  explicit WrappedDataset(const Dataset& whole) : whole_(whole) {}

  const Dataset& whole_;
};

// A data set that consists of the samples `indices` of another data set, `whole`.
class Subset : public WrappedDataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override;
  void ReadTarget(int64_t index, std::byte* target) const override {
    whole_.ReadTarget(indices_[index], target);
  }
  int64_t samples_at_once() const override { return whole_.samples_at_once(); }
  int64_t NumberInFiles(int64_t index) const override {
    return whole_.NumberInFiles(indices_[index]);
  }
  std::string FileOf(int64_t index) const override { return whole_.FileOf(indices_[index]); }
  // Adds the part "division", the indices, to the contents of the whole data set.
  DataContents Contents() const override;

 private:
  std::shared_ptr<const Dataset> owned_;
  std::vector<int64_t> indices_;
};

}  // namespace lockstep
