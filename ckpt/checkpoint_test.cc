#include "ckpt/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/files/xxh3.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "tests/faults/power_cut.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int64_t> StepsIn(const std::string& run) {
  std::vector<int64_t> steps;
  for (const Checkpoint& checkpoint : ListCheckpoints(run)) steps.push_back(checkpoint.step);
  return steps;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

template <typename Act>
std::string CheckpointErrorOf(const Act& act) {
  return MessageOf(ExitStatus::kCheckpoint, act);
}

// Writes a checkpoint of `ranks` ranks, each of which has one file. Returns the newest checkpoint.
Checkpoint Write(const std::string& run, int64_t step, int ranks = 1) {
  std::vector<CheckpointWriter> writers;
  for (int rank = 0; rank < ranks; ++rank) {
    writers.emplace_back(CheckpointWriter::Options{
        .run_dir = run, .step = step, .attempt = "a1", .rank = rank, .ranks = ranks});
  }
  // Rank 0 writes last, because it commits the checkpoint after the parts of all ranks are done.
  for (int rank = ranks - 1; rank >= 0; --rank) {
    writers[rank].WriteFile(fmt::format("state-{}.safetensors", rank),
                            [&](const AppendBytes& append) {
                              append(std::as_bytes(std::span("some bytes", 10)));
                              append(std::as_bytes(std::span("and more", 8)));
                            });
    writers[rank].FinishPart();
  }
  EXPECT_TRUE(writers[0].AllPartsAreFinished());
  checkpoint::Manifest facts;
  facts.set_config("seed: 5");
  facts.set_lockstep_version("1.2.3");
  writers[0].Commit(facts);
  return ListCheckpoints(run).front();
}

TEST(Checkpoint, IsWhatTheRanksWrote) {
  const std::string run = NewFolder();
  EXPECT_THAT(ListCheckpoints(run), IsEmpty());
  const Checkpoint checkpoint = Write(run, 1000, 3);
  EXPECT_EQ(checkpoint.step, 1000);
  EXPECT_THAT(NamesIn(checkpoint.path), ElementsAre("manifest.pb", "state-0.safetensors",
                                                    "state-1.safetensors", "state-2.safetensors"));
  EXPECT_EQ(ReadFile(checkpoint.path + "/state-1.safetensors"), "some bytesand more");
  const checkpoint::Manifest manifest = ReadManifest(checkpoint);
  EXPECT_EQ(manifest.step(), 1000);
  EXPECT_EQ(manifest.ranks(), 3);
  EXPECT_EQ(manifest.config(), "seed: 5");
  EXPECT_EQ(manifest.lockstep_version(), "1.2.3");
  EXPECT_EQ(manifest.file_size(), 3);
  VerifyCheckpoint(checkpoint, manifest);
}

TEST(Checkpoint, TheNewestIsFirst) {
  const std::string run = NewFolder();
  for (const int64_t step : {9L, 100L, 10L, 1'000'000'000'000L}) Write(run, step);
  EXPECT_THAT(StepsIn(run), ElementsAre(1'000'000'000'000, 100, 10, 9));
}

// Writes a checkpoint of one rank. Its manifest has an accuracy that was measured after `metric_step` steps.
void WriteWithMetric(const std::string& run, int64_t step, int64_t metric_step, double accuracy) {
  CheckpointWriter writer({.run_dir = run, .step = step, .attempt = "a1"});
  writer.WriteFile("model", [](const AppendBytes&) {});
  writer.FinishPart();
  checkpoint::Manifest facts;
  facts.set_metric_step(metric_step);
  checkpoint::Metric& metric = *facts.add_metric();
  metric.set_name("accuracy");
  metric.set_value(accuracy);
  writer.Commit(facts);
}

TEST(Checkpoint, TheOthersAreRemoved) {
  const std::string run = NewFolder();
  for (int64_t step = 1; step <= 9; ++step) Write(run, step);
  RemoveOthers(run, {.newest = 2, .every_steps = 3});
  EXPECT_THAT(StepsIn(run), ElementsAre(9, 8, 6, 3));
  RemoveOthers(run, {.newest = 10});
  EXPECT_THAT(StepsIn(run), ElementsAre(9, 8, 6, 3));
  RemoveOthers(run, {.newest = 1});
  EXPECT_THAT(StepsIn(run), ElementsAre(9));
}

TEST(Checkpoint, TheBestIsKept) {
  const std::string run = NewFolder();
  WriteWithMetric(run, 1, 1, 0.5);
  WriteWithMetric(run, 2, 2, 0.7);
  WriteWithMetric(run, 3, 2, 0.9);  // evaluated at another step, so it cannot be the best
  WriteWithMetric(run, 4, 4, std::numeric_limits<double>::quiet_NaN());
  WriteWithMetric(run, 5, 5, 0.6);
  Write(run, 6);
  RemoveOthers(run, {.newest = 2, .best = "accuracy"});
  EXPECT_THAT(StepsIn(run), ElementsAre(6, 5, 2));
  // If two checkpoints have the same value, the first one is the best.
  WriteWithMetric(run, 7, 7, 0.7);
  RemoveOthers(run, {.newest = 1, .best = "accuracy"});
  EXPECT_THAT(StepsIn(run), ElementsAre(7, 2));
  WriteWithMetric(run, 8, 8, 0.8);
  RemoveOthers(run, {.newest = 1, .best = "accuracy", .greater_is_better = false});
  EXPECT_THAT(StepsIn(run), ElementsAre(8, 2));
  // A checkpoint whose manifest cannot be read is kept, because it may be the best.
  WriteWithMetric(run, 9, 9, 0.9);
  fs::rename(run + "/checkpoints/step-000000000002/manifest.pb", run + "/manifest.pb");
  EXPECT_THAT(CheckpointErrorOf([&] { RemoveOthers(run, {.newest = 1, .best = "accuracy"}); }),
              HasSubstr("step-000000000002/manifest.pb"));
  EXPECT_THAT(StepsIn(run), ElementsAre(9, 2));
}

TEST(Checkpoint, WhatARankGivesUpIsRemoved) {
  const std::string run = NewFolder();
  CheckpointWriter writer({.run_dir = run, .step = 1, .attempt = "a"});
  writer.WriteFile(
      "one", [](const AppendBytes& append) { append(std::as_bytes(std::span("some bytes", 10))); });
  EXPECT_ANY_THROW(writer.WriteFile("two", [](const AppendBytes& append) {
    append(std::as_bytes(std::span("some bytes", 10)));
    throw std::runtime_error("no more");
  }));
  EXPECT_FALSE(writer.AnyPartIsGivenUp());
  writer.GiveUp();
  EXPECT_TRUE(writer.AnyPartIsGivenUp());
  EXPECT_THAT(NamesIn(run + "/checkpoints/step-000000000001.a.partial"),
              ElementsAre("part-0.given_up"));
}

TEST(Checkpoint, SeveralVerifyTheirPartsEach) {
  const std::string run = NewFolder();
  const Checkpoint checkpoint = Write(run, 1, 5);
  const checkpoint::Manifest manifest = ReadManifest(checkpoint);
  fs::remove(checkpoint.path + "/state-3.safetensors");
  VerifyCheckpoint(checkpoint, manifest, 0, 2);
  EXPECT_THAT(CheckpointErrorOf([&] { VerifyCheckpoint(checkpoint, manifest, 1, 2); }),
              HasSubstr("state-3.safetensors"));
  EXPECT_THAT(CheckpointErrorOf([&] { VerifyCheckpoint(checkpoint, manifest); }),
              HasSubstr("state-3.safetensors"));
}

TEST(Checkpoint, IsNotListedBeforeAllRanksAreDone) {
  const std::string run = NewFolder();
  Write(run, 1);
  std::vector<CheckpointWriter> writers;
  for (int rank = 0; rank < 2; ++rank) {
    writers.emplace_back(CheckpointWriter::Options{
        .run_dir = run, .step = 2, .attempt = "a", .rank = rank, .ranks = 2});
  }
  writers[0].FinishPart();
  EXPECT_FALSE(writers[0].AllPartsAreFinished());
  EXPECT_THAT(CheckpointErrorOf([&] { writers[0].Commit({}); }), HasSubstr("part-1.pb"));
  EXPECT_THAT(StepsIn(run), ElementsAre(1));
  RemoveLeftovers(run);
  EXPECT_THAT(NamesIn(run + "/checkpoints"), ElementsAre("step-000000000001"));
}

TEST(Checkpoint, AnotherRunsPartsDoNotCount) {
  const std::string run = NewFolder();
  CheckpointWriter dead({.run_dir = run, .step = 7, .attempt = "dead", .rank = 1, .ranks = 2});
  dead.FinishPart();
  CheckpointWriter alive({.run_dir = run, .step = 7, .attempt = "alive", .rank = 0, .ranks = 2});
  alive.FinishPart();
  EXPECT_FALSE(alive.AllPartsAreFinished());
}

TEST(Checkpoint, NeverReplacesAnother) {
  const std::string run = NewFolder();
  const Checkpoint checkpoint = Write(run, 3);
  CheckpointWriter again({.run_dir = run, .step = 3, .attempt = "b", .rank = 0, .ranks = 1});
  again.FinishPart();
  EXPECT_THAT(CheckpointErrorOf([&] { again.Commit({}); }), EndsWith("File exists"));
  VerifyCheckpoint(checkpoint, ReadManifest(checkpoint));
}

TEST(Checkpoint, RemovingOneLeavesTheOthers) {
  const std::string run = NewFolder();
  const Checkpoint first = Write(run, 1);
  Write(run, 2, 2);
  RemoveCheckpoint(first);
  EXPECT_THAT(NamesIn(run + "/checkpoints"), ElementsAre("step-000000000002"));
}

// Checks that every kind of damage is found and the file is named: flips every bit of every file, cuts every file to
// every shorter length, and removes every file.
TEST(Checkpoint, NamesAllDamage) {
  const std::string run = NewFolder();
  const Checkpoint checkpoint = Write(run, 1, 2);
  const auto error = [&] {
    return CheckpointErrorOf([&] { VerifyCheckpoint(checkpoint, ReadManifest(checkpoint)); });
  };
  for (const std::string& name : NamesIn(checkpoint.path)) {
    const std::string path = checkpoint.path + "/" + name, content = ReadFile(path);
    for (size_t bit = 0; bit < 8 * content.size(); ++bit) {
      std::string damaged = content;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      WriteFile(path, damaged);
      EXPECT_THAT(error(), AllOf(HasSubstr(path + ": "), HasSubstr("damaged"))) << "bit " << bit;
    }
    for (size_t length = 0; length < content.size(); ++length) {
      WriteFile(path, content.substr(0, length));
      EXPECT_THAT(error(), HasSubstr(path + ": ")) << "of length " << length;
    }
    fs::remove(path);
    EXPECT_THAT(error(), EndsWith(name + ": cannot be opened: No such file or directory"));
    WriteFile(path, content);
    VerifyCheckpoint(checkpoint, ReadManifest(checkpoint));
  }
}

TEST(Checkpoint, RefusesANewerFormatAndAnotherStep) {
  const std::string run = NewFolder();
  const Checkpoint checkpoint = Write(run, 1);
  const Checkpoint moved{run + "/checkpoints/step-000000000002", 2};
  fs::rename(checkpoint.path, moved.path);
  EXPECT_THAT(CheckpointErrorOf([&] { ReadManifest(moved); }), HasSubstr("is of step 1"));

  checkpoint::Manifest manifest;
  manifest.set_format(2);
  manifest.set_lockstep_version("9.0");
  checkpoint::SealedManifest sealed;
  sealed.set_manifest(manifest.SerializeAsString());
  sealed.set_xxh3(Xxh3Of(sealed.manifest()));
  WriteFile(moved.path + "/manifest.pb", sealed.SerializeAsString());
  EXPECT_THAT(CheckpointErrorOf([&] { ReadManifest(moved); }),
              EndsWith("format 2 of Lockstep 9.0; this is a program for 1: take a newer one"));
}

// Replaces the checkpoint's manifest by `manifest`, with a correct checksum.
void Seal(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
  checkpoint::SealedManifest sealed;
  sealed.set_manifest(manifest.SerializeAsString());
  sealed.set_xxh3(Xxh3Of(sealed.manifest()));
  WriteFile(checkpoint.path + "/manifest.pb", sealed.SerializeAsString());
}

TEST(Checkpoint, RefusesWhatMakesNoSense) {
  const std::string run = NewFolder();
  const Checkpoint checkpoint = Write(run, 1, 2);
  const checkpoint::Manifest good = ReadManifest(checkpoint);
  const auto error_of = [&](const auto& change) {
    checkpoint::Manifest manifest = good;
    change(manifest);
    Seal(checkpoint, manifest);
    return CheckpointErrorOf([&] { ReadManifest(checkpoint); });
  };
  using Manifest = checkpoint::Manifest;
  for (const char* name : {"../weights.safetensors", "/etc/passwd", "a/b", "..", ".", "",
                           "manifest.pb", "a/../state-0.safetensors"}) {
    EXPECT_THAT(error_of([&](Manifest& m) { m.mutable_file(0)->set_name(name); }),
                HasSubstr(fmt::format("makes no sense: a file \"{}\"", name)));
  }
  EXPECT_THAT(error_of([](Manifest& m) { m.mutable_file(0)->set_name(std::string("a\0b", 3)); }),
              HasSubstr("makes no sense"));
  EXPECT_THAT(error_of([](Manifest& m) { m.clear_file(); }), HasSubstr("it names no files"));
  EXPECT_THAT(error_of([](Manifest& m) { *m.add_file() = m.file(0); }),
              HasSubstr("state-0.safetensors twice"));
  EXPECT_THAT(error_of([](Manifest& m) { m.mutable_file(0)->set_bytes(-1); }),
              HasSubstr("state-0.safetensors of -1 bytes"));
  EXPECT_THAT(error_of([](Manifest& m) {
                m.mutable_file(0)->set_bytes(std::numeric_limits<int64_t>::max());
              }),
              HasSubstr("state-1.safetensors of 18 bytes"));
  for (const int ranks : {0, -1, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(error_of([&](Manifest& m) { m.set_ranks(ranks); }),
                HasSubstr(fmt::format("makes no sense: {} ranks", ranks)));
  }
  EXPECT_THAT(error_of([](Manifest& m) { m.set_format(0); }), HasSubstr("format 0"));
  Seal(checkpoint, good);
  VerifyCheckpoint(checkpoint, ReadManifest(checkpoint));
}

TEST(Checkpoint, RefusesWhatIsNoPlainFile) {
  for (const char* name : {"manifest.pb", "state-0.safetensors"}) {
    const std::string run = NewFolder();
    const Checkpoint checkpoint = Write(run, 1);
    const std::string path = checkpoint.path + "/" + name;
    const auto verify = [&] { VerifyCheckpoint(checkpoint, ReadManifest(checkpoint)); };
    const std::string elsewhere = NewPath();
    fs::rename(path, elsewhere);
    fs::create_symlink(elsewhere, path);
    EXPECT_EQ(CheckpointErrorOf(verify), path + ": cannot be opened: it is a link");
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(CheckpointErrorOf(verify), path + ": cannot be opened: it is a pipe");
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_EQ(CheckpointErrorOf(verify), path + ": cannot be opened: it is a folder");
    fs::remove(path);
    fs::rename(elsewhere, path);
    verify();
    // Not even the checkpoint's folder may be a link.
    fs::rename(checkpoint.path, elsewhere);
    fs::create_directory_symlink(elsewhere, checkpoint.path);
    EXPECT_THAT(CheckpointErrorOf(verify), HasSubstr("step-000000000001: it is a link"));
  }
}

TEST(Checkpoint, RemovesNothingWhereALinkLeads) {
  const std::string run = NewFolder();
  Write(run, 1);
  const std::string outside = NewFolder();
  WriteFile(outside + "/kept", "");
  fs::create_directory_symlink(outside, run + "/checkpoints/step-000000000002.a1.partial");
  RemoveLeftovers(run);
  EXPECT_THAT(NamesIn(outside), ElementsAre("kept"));
  EXPECT_THAT(NamesIn(run + "/checkpoints"), ElementsAre("step-000000000001"));
}

// ---- Faults -------------------------------------------------------------------------------------

std::vector<int64_t> NumbersIn(const std::string& text) {
  std::istringstream words(text);
  std::vector<int64_t> numbers;
  for (int64_t number; words >> number;) numbers.push_back(number);
  return numbers;
}

struct Outcome {
  int status = 0;                  // the wait status from waitpid()
  std::vector<int64_t> committed;  // the steps that the process printed
};

// Runs checkpoint_cycle, and injects `fault` at the `at`-th call that changes the file system. If `log` is not empty,
// these calls are recorded in the file `log`.
Outcome RunCycle(const std::string& run, int ranks, int64_t first, int64_t last,
                 const std::string& fault, int64_t at, const std::string& log = "") {
  // fork() would copy the page tables of this process, which LibTorch makes large, in each of hundreds of cases.
  std::vector<std::string> variables{
      "LD_PRELOAD=" + fs::absolute("tests/faults/libfault_at.so").string(), "FAULT=" + fault,
      "FAULT_AT=" + std::to_string(at)};
  if (!log.empty()) variables.push_back("FAULT_LOG=" + log);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    environment.push_back(*inherited);
  }
  environment.push_back(nullptr);
  std::vector<std::string> words{"checkpoint_cycle", run, std::to_string(ranks),
                                 std::to_string(first), std::to_string(last)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "ckpt/checkpoint_cycle", &actions, nullptr, arguments.data(),
                        environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  std::array<char, 1000> buffer{};
  for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), got);
  }
  close(ends[0]);
  Outcome outcome;
  waitpid(child, &outcome.status, 0);
  outcome.committed = NumbersIn(said);
  return outcome;
}

// Checks that each listed checkpoint is whole, and that the newest one is of the last step in `committed` or of the
// next step. Also checks that at most three checkpoints are listed, and at least two if `committed` has two or more
// steps, or at least one if `committed` has one.
void ExpectNothingLost(const std::string& run, const std::vector<int64_t>& committed) {
  const std::vector<Checkpoint> listed = ListCheckpoints(run);
  for (const Checkpoint& checkpoint : listed) {
    VerifyCheckpoint(checkpoint, ReadManifest(checkpoint));
  }
  const std::vector<int64_t> steps = StepsIn(run);
  // The process may have ended after it committed a checkpoint and before it printed the step.
  if (!committed.empty()) {
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps.front(), committed.back());
    EXPECT_LE(steps.front(), committed.back() + 1);
  }
  EXPECT_GE(steps.size(), std::min<size_t>(committed.size(), 2));
  EXPECT_LE(steps.size(), 3U);
}

TEST(Checkpoint, SurvivesAKillAtEachCall) {
  int cases = 0;
  for (const int ranks : {1, 2, 3}) {
    for (int64_t at = 1;; ++at, ++cases) {
      SCOPED_TRACE(fmt::format("{} ranks, call {}", ranks, at));
      const std::string run = NewFolder();
      const Outcome outcome = RunCycle(run, ranks, 1, 4, "kill", at);
      if (WIFEXITED(outcome.status)) {
        ASSERT_EQ(WEXITSTATUS(outcome.status), 0);
        break;
      }
      ASSERT_EQ(WTERMSIG(outcome.status), SIGKILL);
      ExpectNothingLost(run, outcome.committed);
      // The next run begins with the step after the newest checkpoint that is listed.
      const std::vector<int64_t> before = StepsIn(run);
      const int64_t next = before.empty() ? 1 : before.front() + 1;
      const Outcome again = RunCycle(run, ranks, next, 5, "kill", 1'000'000);
      ASSERT_EQ(again.status, 0);
      EXPECT_THAT(StepsIn(run), ElementsAre(5, 4));
      EXPECT_THAT(NamesIn(run + "/checkpoints"),
                  ElementsAre("step-000000000004", "step-000000000005"));
      if (HasFailure()) return;
    }
  }
  fmt::print("{} cases\n", cases);
  EXPECT_GT(cases, 200);
}

TEST(Checkpoint, SurvivesAPowerCutAfterEachCall) {
  int cases = 0;
  std::mt19937 random(1);
  for (const int ranks : {1, 2, 3}) {
    const std::string run = NewFolder(), log = NewFolder() + "/calls";
    ASSERT_EQ(RunCycle(run, ranks, 1, 4, "none", 1'000'000, log).status, 0);
    const RecordedCalls calls(log, run);
    for (size_t count = 0; count <= calls.size(); ++count) {
      using Kept = RecordedCalls::Kept;
      for (const Kept kept : {Kept::kNothing, Kept::kAll, Kept::kSome, Kept::kSome, Kept::kSome}) {
        SCOPED_TRACE(
            fmt::format("{} ranks, {} calls, kept {}", ranks, count, static_cast<int>(kept)));
        const std::string restored = NewFolder();
        calls.Restore(count, kept, random, restored);
        ExpectNothingLost(restored, NumbersIn(calls.SaidIn(count)));
        ++cases;
        if (HasFailure()) return;
      }
    }
  }
  fmt::print("{} cases\n", cases);
  EXPECT_GT(cases, 1000);
}

TEST(Checkpoint, AWriteErrorLeavesWhatWasCommitted) {
  for (const std::string fault : {"ENOSPC", "EIO", "EDQUOT", "EROFS"}) {
    for (int64_t at = 1;; ++at) {
      SCOPED_TRACE(fmt::format("{} from call {} on", fault, at));
      const std::string run = NewFolder();
      const Outcome outcome = RunCycle(run, 2, 1, 3, fault, at);
      ASSERT_TRUE(WIFEXITED(outcome.status));
      if (WEXITSTATUS(outcome.status) == 0) break;
      ASSERT_EQ(WEXITSTATUS(outcome.status), static_cast<int>(ExitStatus::kCheckpoint));
      ExpectNothingLost(run, outcome.committed);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace lockstep
