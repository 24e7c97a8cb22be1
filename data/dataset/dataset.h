// Dataset: the interface through which training reads samples by their number. Each format of data implements it.
//
// Promise: size() and spec() never change. Many threads may call Read() at once. Read() gives the same bytes every time
// for the same index and epoch. A reader of a format checks the whole file when it opens the file, so a bad row is an
// error at the start of training and not hours later. Images are an exception: an image is checked when it is read
// (data/images/image_dataset.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// What a sample's target is.
enum class Task {
  kClassification,  // a class: int64 in [0, classes)
  kMultiLabel,      // whether each label applies: float32 [classes], 0 or 1
  kRegression,      // float32 [classes]
  kLanguage,        // the token behind each one of the input: int64 [tokens]
};

struct SampleSpec {
  // Of one input: {features}, {channels, height, width}, or {tokens}.
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;  // kFloat, kByte for pixels in 0..255, kLong for tokens
  bool channels_last = false;  // a pixel's channels lie side by side, {height, width, channels}
  int64_t classes = 0;         // that a model puts out: classes, labels or numbers
  std::vector<std::string> class_names{};  // in the order of the labels; empty: they have none
  Task task = Task::kClassification;

  int64_t bytes() const;                      // of one input
  std::vector<int64_t> target_shape() const;  // of one target
  at::ScalarType target_dtype() const;
  int64_t target_bytes() const;  // of one target
  int64_t targets() const;       // elements of one target
};

// Memory for `count` inputs or targets: [count, shape...] and [count, target_shape...], as spec says
// how they lie. `where`: device and whether the memory is page-locked.
at::Tensor EmptyInputs(const SampleSpec& spec, int64_t count, at::TensorOptions where);
at::Tensor EmptyTargets(const SampleSpec& spec, int64_t count, at::TensorOptions where);

// Seconds that threads spent in Read(), all together; 0 where a data set does not count them.
struct ReadTimes {
  double files = 0;
  double decoding = 0;
  double resizing = 0;
  double gpu = 0;  // waiting for a GPU, which decodes and resizes

  ReadTimes operator-(const ReadTimes& other) const;
};

class Dataset {
 public:
  static constexpr int64_t kNoLabel = -1;

  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual const SampleSpec& spec() const = 0;

  // Writes sample `index`: spec().bytes() bytes to `input`, spec().target_bytes() to `target`; a class
  // that is not known is kNoLabel, a number that is not is NaN. Where the data set augments samples at
  // random, each `epoch` sees another variant.
  virtual void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const = 0;

  // As many calls of Read(): writes the samples `indices`, one behind the other. Throws what the first of
  // them that fails throws.
  virtual void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                        std::byte* target) const;

  // How many samples ReadSome() is best asked for. More than 1: something else than the thread that asks
  // makes them, which two threads keep busy.
  virtual int64_t samples_at_once() const { return 1; }

  // Of a data set as it was opened: the same samples as they are evaluated, without random
  // augmentation; null: they have none.
  virtual std::shared_ptr<const Dataset> Plain() const { return nullptr; }

  // The number of sample `index` among all of the files, from 0.
  virtual int64_t NumberInFiles(int64_t index) const { return index; }

  // Why other samples stood in for some (data/dataset/skip_bad.h), a line each, of those that no earlier call
  // returned.
  virtual std::vector<std::string> TakeReports() const { return {}; }

  // What a user should know of how the files were taken, a line each, with the files' names.
  virtual std::vector<std::string> Remarks() const { return {}; }

  // What Read() has taken so far.
  virtual ReadTimes times() const { return {}; }

  // What tells it from other data sets of the same size and spec, which another rank may have opened
  // by mistake; empty: nothing does.
  virtual std::string Fingerprint() const { return ""; }
};

// A data set made of another, to which it leaves all that it does not override, but Plain().
class WrappedDataset : public Dataset {
 public:
  int64_t size() const override { return whole_.size(); }
  const SampleSpec& spec() const override { return whole_.spec(); }
  int64_t NumberInFiles(int64_t index) const override { return whole_.NumberInFiles(index); }
  std::vector<std::string> TakeReports() const override { return whole_.TakeReports(); }
  ReadTimes times() const override { return whole_.times(); }
  std::string Fingerprint() const override { return whole_.Fingerprint(); }

 protected:
  // Keeps a reference to `whole`.
  explicit WrappedDataset(const Dataset& whole) : whole_(whole) {}

  const Dataset& whole_;
};

// Some of another data set's samples.
class Subset : public WrappedDataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override;
  int64_t samples_at_once() const override { return whole_.samples_at_once(); }
  int64_t NumberInFiles(int64_t index) const override {
    return whole_.NumberInFiles(indices_[index]);
  }

 private:
  std::shared_ptr<const Dataset> owned_;
  std::vector<int64_t> indices_;
};

struct Split {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
};

// Cuts `samples` samples in two: the last ceil(samples * validation_fraction) positions of
// Permutation(samples, seed, 2^64 - 1) validate, the others train; both lists ascend. No epoch has
// that round, so the split is independent of every epoch's order. Throws Error (kUsage) where a
// part would be empty.
Split SplitBySeed(int64_t samples, double validation_fraction, uint64_t seed);

}  // namespace lockstep
