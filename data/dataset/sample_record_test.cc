#include "data/dataset/sample_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Samples in memory, of which `changed` have another file time.
struct Samples {
  std::vector<std::string> texts;
  std::set<int64_t> changed;
  std::vector<int64_t> read;
  std::mutex mutex;

  uint32_t HashOf(int64_t i) const {
    return SampleRecord::HashOf(std::as_bytes(std::span(texts[i])));
  }
  SampleRecord::Options Options(int64_t most_read = 10) {
    return {.part = "texts",
            .samples = std::ssize(texts),
            .name_of = [](int64_t i) { return "text " + std::to_string(i); },
            .read =
                [this](int64_t i) {
                  const std::lock_guard lock(mutex);
                  read.push_back(i);
                  return HashOf(i);
                },
            .changed_since =
                [this](int64_t, std::vector<int64_t> known) {
                  std::erase_if(known, [&](int64_t i) { return !changed.contains(i); });
                  return known;
                },
            .most_read = most_read};
  }
};

TEST(SampleRecord, NamesWhatHasChanged) {
  Samples samples{.texts = {"a", "b", "c"}};
  SampleRecord record(samples.Options());
  record.Check(1, samples.HashOf(1));
  record.Check(1, samples.HashOf(2));  // it was not kept, so it may be anything
  record.Keep(1, samples.HashOf(1));
  record.Check(1, samples.HashOf(1));
  EXPECT_THAT(DataErrorOf([&] { record.Check(1, samples.HashOf(2)); }),
              HasSubstr("text 1: its content is not what the run has read there before"));
  record.Keep(1, samples.HashOf(2));  // the first content counts
  record.Check(1, samples.HashOf(1));
}

TEST(SampleRecord, HasHashesThatAreNeverZero) {
  for (int i = 0; i < 100; ++i) {
    const std::string text = std::to_string(i);
    const uint32_t hash = SampleRecord::HashOf(std::as_bytes(std::span(text)));
    EXPECT_GT(hash, 0);
    EXPECT_LE(hash, INT32_MAX);
  }
}

TEST(SampleRecord, TellsNewsOnce) {
  Samples samples{.texts = {"a", "b"}};
  SampleRecord record(samples.Options());
  EXPECT_FALSE(record.TakeNews());
  record.Keep(0, samples.HashOf(0));
  EXPECT_TRUE(record.TakeNews());
  record.Keep(0, samples.HashOf(0));
  EXPECT_FALSE(record.TakeNews());
}

TEST(SampleRecord, ReadsAgainWhatFilesSayHasChanged) {
  Samples samples{.texts = {"a", "b", "c", "d"}};
  SampleRecord record(samples.Options());
  record.Restore(std::vector<uint32_t>{samples.HashOf(0), samples.HashOf(1), 0, samples.HashOf(3)});
  EXPECT_THAT(record.hashes(),
              ElementsAre(samples.HashOf(0), samples.HashOf(1), 0, samples.HashOf(3)));
  record.VerifyChanged(0, 0, 1);
  EXPECT_THAT(samples.read, IsEmpty());
  samples.changed = {0, 1, 2};
  samples.texts = {"a", "b", "x", "x"};
  record.VerifyChanged(0, 0,
                       1);  // sample 2 was never read before, and the file of sample 3 is as it was
  EXPECT_THAT(samples.read, testing::UnorderedElementsAre(0, 1));
  samples.read.clear();
  record.VerifyChanged(0, 1, 2);
  EXPECT_THAT(samples.read, ElementsAre(1));
  samples.texts[1] = "x";
  EXPECT_THAT(DataErrorOf([&] { record.VerifyChanged(0, 0, 1); }), HasSubstr("text 1"));
}

TEST(ChangedFiles, AreThoseOfWhichTheFileSystemSaysIt) {
  const std::string folder = NewFolder();
  for (const char* name : {"0", "1", "3"}) WriteFile(folder + "/" + name, name);
  const auto changed = [&](int64_t time_ns, const std::vector<int64_t>& samples) {
    return ChangedFiles(time_ns, samples,
                        [&](int64_t i) { return folder + "/" + std::to_string(i); });
  };
  EXPECT_THAT(changed(0, {0, 1, 3}), ElementsAre(0, 1, 3));
  EXPECT_THAT(changed(INT64_MAX, {0, 1, 2, 3}), ElementsAre(2));  // there is no file 2
  EXPECT_THAT(changed(0, std::vector<int64_t>(20'001)), IsEmpty());
}

TEST(SampleRecord, ReadsALimitedNumberAgain) {
  Samples samples{.texts = {"a", "b", "c", "d"}};
  SampleRecord record(samples.Options(/*most_read=*/2));
  for (int64_t i = 0; i < 4; ++i) record.Keep(i, samples.HashOf(i));
  samples.changed = {1, 2, 3};
  record.VerifyChanged(0, 0, 1);
  EXPECT_THAT(samples.read, testing::UnorderedElementsAre(1, 2));
}

}  // namespace
}  // namespace lockstep
