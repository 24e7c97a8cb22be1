#include "ckpt/saver.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>

#include "base/files/safetensors.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;

class SaverTest : public testing::Test {
 protected:
  std::unique_ptr<Saver> Make(int rank = 0, int ranks = 1, size_t keep = 2,
                              double bytes_per_s = 0) const {
    Saver::Options options{.run_dir = run_,
                           .attempt = "a1",
                           .rank = rank,
                           .ranks = ranks,
                           .retention = {.newest = keep},
                           .bytes_per_s = bytes_per_s};
    options.manifest.set_config("seed: 1");
    return std::make_unique<Saver>(at::Device(at::kCPU), std::move(options));
  }

  void Save(Saver& saver, int64_t step) {
    StateTree state;
    state.BeginPart("part", 3);
    state.Add("moments", moments_);
    checkpoint::Manifest facts;
    checkpoint::Metric& metric = *facts.add_metric();
    metric.set_name("loss");
    metric.set_value(0.5);
    saver.Save(step, {{"weight", weight_}}, state, {}, facts);
    if (releases_) saver.Release(step);
  }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const Checkpoint& checkpoint : ListCheckpoints(run_)) steps.push_back(checkpoint.step);
    return steps;
  }

  // Counts all names in the checkpoints folder: the checkpoints and any other files or folders.
  int64_t NamesInFolder() const {
    const fs::directory_iterator names(run_ + "/checkpoints");
    return std::distance(fs::begin(names), fs::end(names));
  }

  bool releases_ = true;
  std::string run_ = NewFolder();
  at::Tensor weight_ = at::ones({3, 2}).t();
  at::Tensor moments_ = at::full({1000}, 2.0);
};

TEST_F(SaverTest, KeepsWhatWasThereWhenItWasAsked) {
  const auto saver = Make();
  Save(*saver, 7);
  weight_.zero_();
  moments_.zero_();
  saver->Wait();
  EXPECT_FALSE(saver->busy());
  const auto outcome = saver->TakeOutcome();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->error, "");
  EXPECT_EQ(outcome->step, 7);
  EXPECT_FALSE(saver->TakeOutcome());

  const Checkpoint checkpoint = CheckpointOf(run_, 7);
  const checkpoint::Manifest manifest = ReadManifest(checkpoint);
  VerifyCheckpoint(checkpoint, manifest);
  EXPECT_EQ(manifest.config(), "seed: 1");
  EXPECT_EQ(manifest.part_version().at("part"), 3);
  EXPECT_EQ(manifest.metric(0).value(), 0.5);
  EXPECT_TRUE(at::equal(ReadSafetensors(ModelFile(checkpoint), kGivenByUser).at("weight"),
                        at::ones({2, 3})));
  EXPECT_TRUE(at::equal(
      ReadSafetensors(StateFiles(checkpoint, manifest).at(0), kGivenByUser).at("part.moments"),
      at::full({1000}, 2.0)));
  int64_t bytes = 0;
  for (const checkpoint::File& file : manifest.file()) bytes += file.bytes();
  EXPECT_EQ(outcome->bytes, bytes);
}

TEST_F(SaverTest, RequiresTheFilesOfAllRanks) {
  const auto saver = Make();
  Save(*saver, 7);
  saver->Wait();
  const Checkpoint checkpoint = CheckpointOf(run_, 7);
  checkpoint::Manifest manifest = ReadManifest(checkpoint);
  RequireFiles(checkpoint, manifest);
  manifest.set_ranks(2);
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { RequireFiles(checkpoint, manifest); }),
              HasSubstr("does not name state-1.safetensors"));
  manifest.set_ranks(1);
  manifest.mutable_file(0)->set_name("model.safetensors.old");
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { RequireFiles(checkpoint, manifest); }),
              HasSubstr("does not name model.safetensors"));
}

TEST_F(SaverTest, KeepsTheNewest) {
  const auto saver = Make();
  for (const int64_t step : {3, 6, 9, 12}) {
    Save(*saver, step);
    saver->Wait();
  }
  EXPECT_THAT(Steps(), ElementsAre(12, 9));
}

TEST_F(SaverTest, CommitsOnceAllRanksHaveWritten) {
  const auto first = Make(0, 2), second = Make(1, 2);
  Save(*first, 5);
  EXPECT_TRUE(first->busy());
  EXPECT_THAT(Steps(), ElementsAre());
  Save(*second, 5);
  second->Wait();
  first->Wait();
  EXPECT_THAT(Steps(), ElementsAre(5));
}

TEST_F(SaverTest, CommitsOnceTheStepIsReleased) {
  const auto saver = Make();
  releases_ = false;
  Save(*saver, 5);
  saver->Release(4);
  saver->Abandon();
  saver->Wait();
  EXPECT_THAT(Steps(), ElementsAre());
  Save(*saver, 6);
  saver->Release(6);
  saver->Wait();
  EXPECT_THAT(Steps(), ElementsAre(6));
  saver->Release(7);
  Save(*saver, 7);
  saver->Wait();
  EXPECT_THAT(Steps(), ElementsAre(7, 6));
}

TEST_F(SaverTest, APacedOneIsGivenUpAtOnce) {
  const auto saver = Make(0, 1, 2, /*bytes_per_s=*/1);
  Save(*saver, 5);
  saver->Abandon();
  saver->Wait();
  EXPECT_EQ(saver->TakeOutcome()->error, "it was given up");
  EXPECT_THAT(Steps(), ElementsAre());
}

TEST_F(SaverTest, SaysThatMemoryWasLacking) {
  const auto saver = Make();
  moments_ = at::zeros({1}).expand({int64_t{1} << 50});
  Save(*saver, 5);
  saver->Wait();
  EXPECT_THAT(saver->TakeOutcome()->error, HasSubstr("allocate memory"));
  EXPECT_THAT(Steps(), ElementsAre());
  moments_ = at::ones({10});
  Save(*saver, 6);
  saver->Wait();
  EXPECT_THAT(Steps(), ElementsAre(6));
  EXPECT_EQ(NamesInFolder(), 1);
}

TEST_F(SaverTest, RankZeroGivesUpWithoutAnothersPart) {
  const auto first = Make(0, 2), second = Make(1, 2);
  // Makes a folder with the name of rank 1's file, so that rank 1 cannot write the file.
  fs::create_directories(run_ + "/checkpoints/step-000000000005.a1.partial/state-1.safetensors");
  Save(*second, 5);
  Save(*first, 5);
  second->Wait();
  first->Wait();
  const auto outcome = first->TakeOutcome();
  EXPECT_EQ(outcome->error, "another rank could not write its part");
  EXPECT_TRUE(outcome->given_up);
  const auto reason = second->TakeOutcome();
  EXPECT_THAT(reason->error, HasSubstr("state-1.safetensors"));
  EXPECT_FALSE(reason->given_up);
  fs::remove(run_ + "/checkpoints/step-000000000005.a1.partial/state-1.safetensors");
  first->RemoveRemains();
  EXPECT_EQ(NamesInFolder(), 0);
}

TEST_F(SaverTest, TheNextOneFollowsAnAbandonedOne) {
  const auto first = Make(0, 2), second = Make(1, 2);
  Save(*first, 5);
  first->Abandon();
  first->Wait();
  EXPECT_TRUE(first->failed());
  EXPECT_EQ(first->TakeOutcome()->error, "another rank could not write its part");
  Save(*first, 6);
  Save(*second, 6);
  first->Wait();
  second->Wait();
  EXPECT_THAT(Steps(), ElementsAre(6));
  EXPECT_EQ(NamesInFolder(), 1);
}

TEST_F(SaverTest, GivesUpWhenItIsDestroyed) {
  auto first = Make(0, 2);
  Save(*first, 5);
  first.reset();
  EXPECT_THAT(Steps(), ElementsAre());
}

TEST_F(SaverTest, SaysWhatFailed) {
  const auto saver = Make();
  Save(*saver, 5);
  saver->Wait();
  {
    const LimitedFileSize limit(100);
    Save(*saver, 6);
    saver->Wait();
  }
  EXPECT_TRUE(saver->failed());
  EXPECT_THAT(saver->TakeOutcome()->error,
              HasSubstr("model.safetensors: cannot be written: File too large"));
  EXPECT_THAT(Steps(), ElementsAre(5));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/step-000000000006.a1.partial"));
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/step-000000000006.a1.partial/model.safetensors"));
  Save(*saver, 7);
  saver->Wait();
  EXPECT_THAT(Steps(), ElementsAre(7, 5));
  EXPECT_EQ(NamesInFolder(), 2);
}

}  // namespace
}  // namespace lockstep
