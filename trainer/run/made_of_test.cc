#include "trainer/run/made_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/files/safetensors.h"
#include "base/testing/test_files.h"
#include "data/dataset/in_memory.h"
#include "data/dataset/sample_record.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

// Samples of two bytes, with labels, in a file.
struct Samples {
  std::vector<std::string> pixels;
  std::vector<int64_t> labels;
  std::string file = "as it was";
};

const Samples kAsTheyWere{.pixels = {"aa", "bb", "cc", "dd"}, .labels = {0, 1, 2, 0}};

std::shared_ptr<const Dataset> DatasetOf(const Samples& samples) {
  const std::string pixels =
      std::accumulate(samples.pixels.begin(), samples.pixels.end(), std::string());
  const auto bytes = std::as_bytes(std::span(pixels));
  DataContents files;
  files.AddFile("digits", samples.file);
  return MakeInMemory({.shape = {2}, .dtype = at::kByte, .classes = 3},
                      {bytes.begin(), bytes.end()}, BytesOf(samples.labels), files);
}

checkpoint::DataSet SetOf(const Samples& samples, const std::vector<int64_t>& indices = {}) {
  std::shared_ptr<const Dataset> dataset = DatasetOf(samples);
  if (!indices.empty()) dataset = std::make_shared<Subset>(dataset, indices);
  return DataSetOf(kTrainingSet, {}, *dataset);
}

// Returns what differs between kAsTheyWere and `samples`.
std::string DifferenceOf(const Samples& samples) {
  return WhatDiffers(SetOf(kAsTheyWere), SetOf(samples));
}

TEST(WhatDiffers, SaysWhatTheFilesHoldNow) {
  struct Case {
    Samples samples;
    std::string says;  // behind the file's name
  };
  const std::string of_training = " of the training samples ";
  for (const auto& [samples, says] : std::vector<Case>{
           {{{"aa", "bb", "cc", "dd"}, {0, 1, 2, 1}}, "the labels" + of_training + "have changed"},
           {{{"aa", "bb", "cc", "dd"}, {1, 0, 2, 0}}, "the labels" + of_training + "have changed"},
           {{{"aa", "bb", "cx", "dd"}, {0, 1, 2, 0}}, "the pixels" + of_training + "have changed"},
           {{{"ab", "ab", "cc", "dd"}, {0, 1, 2, 0}}, "the pixels" + of_training + "have changed"},
           {{{"aa", "bb", "cx", "dd"}, {0, 1, 0, 0}},
            "the pixels and labels" + of_training + "have changed"},
           {{{"dd", "bb", "cc", "aa"}, {0, 1, 2, 0}}, "the order" + of_training + "has changed"},
           {{{"bb", "aa", "cc", "dd"}, {1, 0, 2, 0}}, "the order" + of_training + "has changed"},
           {{{"bb", "aa", "cc", "dd"}, {0, 1, 2, 0}}, "the pixels" + of_training + "have changed"},
           {{{"aa", "bb", "cc"}, {0, 1, 2}},
            "the 4 training samples have become 3 training samples"},
           {{{"aa", "bb", "cc", "dd", "dd"}, {0, 1, 2, 0, 0}},
            "the 4 training samples have become 5 training samples"}}) {
    Samples changed = samples;
    changed.file = "as it is.";
    EXPECT_EQ(DifferenceOf(changed), "digits: " + says);
    changed.file = "longer than it was";
    const std::string size = samples.pixels.size() == 4 ? " (18 bytes, where it had 9)" : "";
    EXPECT_EQ(DifferenceOf(changed), "digits: " + says + size);
  }
}

TEST(WhatDiffers, IsNothingForWhatNoSampleDependsOn) {
  EXPECT_THAT(DifferenceOf(kAsTheyWere), IsEmpty());
  Samples samples = kAsTheyWere;
  samples.file = "as it was, with a note";
  EXPECT_THAT(DifferenceOf(samples), IsEmpty());
}

TEST(WhatDiffers, IsNothingIfOnlyTheConfigDividesOtherwise) {
  const checkpoint::DataSet was = SetOf(kAsTheyWere, {0, 1});
  EXPECT_THAT(WhatDiffers(was, SetOf(kAsTheyWere, {0, 2})), IsEmpty());
  Samples samples = kAsTheyWere;
  samples.file = "as it is.";
  EXPECT_EQ(WhatDiffers(was, SetOf(samples, {0, 2})),
            "digits: the division of the training samples has changed");
}

TEST(HaveSameSamples, NoticesWhatTheConfigChanges) {
  const checkpoint::DataSet was = SetOf(kAsTheyWere, {0, 1});
  EXPECT_TRUE(HaveSameSamples(was, SetOf(kAsTheyWere, {0, 1})));
  EXPECT_FALSE(HaveSameSamples(was, SetOf(kAsTheyWere, {0, 2})));
  EXPECT_FALSE(HaveSameSamples(was, SetOf(kAsTheyWere, {0, 1, 2})));
  Samples samples = kAsTheyWere;
  samples.file = "another note";
  EXPECT_TRUE(HaveSameSamples(was, SetOf(samples, {0, 1})));
  samples.labels[0] = 2;
  EXPECT_FALSE(HaveSameSamples(was, SetOf(samples, {0, 1})));
}

// A data set of three samples that are read from files while a run trains.
class Files : public Dataset {
 public:
  explicit Files(std::vector<std::string> texts) : texts_(std::move(texts)) {
    record_ = std::make_shared<SampleRecord>(SampleRecord::Options{
        .part = "texts",
        .samples = size(),
        .name_of = [](int64_t i) { return "text " + std::to_string(i); },
        .read = [this](int64_t i) { return HashOf(i); },
        .changed_since = [](int64_t, auto) { return std::vector<int64_t>(); }});
  }

  int64_t size() const override { return std::ssize(texts_); }
  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t, std::byte*, std::byte*) const override {
    record_->Keep(index, HashOf(index));
  }
  std::vector<std::shared_ptr<SampleRecord>> Records() const override { return {record_}; }
  const SampleRecord& record() const { return *record_; }

 private:
  uint32_t HashOf(int64_t i) const {
    return SampleRecord::HashOf(std::as_bytes(std::span(texts_[i])));
  }

  SampleSpec spec_;
  std::vector<std::string> texts_;
  std::shared_ptr<SampleRecord> record_;
};

TEST(SampleRecords, SayWhichSamplesWereOthers) {
  const auto read = [](const Files& files, const std::vector<int64_t>& indices) {
    for (const int64_t i : indices) files.Read(i, 0, nullptr, nullptr);
  };
  const Files was({"a", "b", "c"});
  read(was, {0, 1});
  const std::vector<uint32_t> hashes = was.record().hashes();
  const at::Tensor tensor = at::empty({3}, at::kInt);
  std::ranges::copy(hashes, tensor.mutable_data_ptr<int32_t>());
  const std::string path = NewPath();
  WriteSafetensors(path, {{"validation.texts", tensor}}, {});
  const auto difference = [&](const std::vector<std::string>& texts,
                              const std::vector<int64_t>& indices) {
    const Files train({"x"}), is(texts);
    const SampleRecords records(train, &is);
    read(is, indices);
    return records.WhatDiffers(path);
  };
  EXPECT_EQ(difference({"a", "b", "c"}, {0, 1, 2}), "");
  EXPECT_EQ(difference({"a", "x", "c"}, {0}), "");                // sample 1 was not read again
  EXPECT_EQ(difference({"a", "b", "x"}, {0, 1, 2}), "");          // sample 2 was never read before
  EXPECT_EQ(difference({"a", "b", "c", "d"}, {0, 1, 2, 3}), "");  // of other samples
  EXPECT_EQ(difference({"a", "x", "x"}, {0, 1, 2}), "text 1: its content has changed");
  EXPECT_EQ(difference({"x", "x", "c"}, {0, 1, 2}),
            "text 0: its content, and that of 1 other, has changed");
}

}  // namespace
}  // namespace lockstep
