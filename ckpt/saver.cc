#include "ckpt/saver.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/safetensors.h"

namespace lockstep {
namespace {

constexpr char kModel[] = "model.safetensors";
constexpr char kStatePrefix[] = "state-";
constexpr char kSamples[] = "samples.safetensors";

std::string StateName(int rank) { return fmt::format("{}{}.safetensors", kStatePrefix, rank); }

// The interval at which rank 0 checks whether the other ranks' parts are done. Ranks on other machines write their
// parts through a shared file system, so rank 0 has to poll.
constexpr std::chrono::milliseconds kPartsInterval{5};

// The exception that is thrown if this rank stops writing a checkpoint because another rank could not write its part,
// or because the checkpoint was abandoned.
class GivenUp : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

Saver::Saver(at::Device device, Options options)
    : options_(std::move(options)),
      device_(device),
      snapshot_(device),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

Saver::~Saver() { Abandon(); }

bool Saver::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

void Saver::Save(int64_t step, const std::vector<NamedTensor>& model, const StateTree& state,
                 const std::vector<NamedTensor>& samples, const checkpoint::Manifest& facts) {
  if (busy()) throw BugError("checkpoint of step {} while one is being written", step);
  int64_t model_bytes = 0;
  for (const NamedTensor& named : model) model_bytes += static_cast<int64_t>(named.tensor.nbytes());
  std::vector<NamedTensor> tensors;
  if (options_.rank == 0) tensors = model;
  model_tensors_ = tensors.size();
  for (NamedTensor& part : PartOf(state, options_.rank, options_.ranks, model_bytes)) {
    tensors.push_back(std::move(part));
  }
  samples_tensors_ = options_.rank == 0 ? samples.size() : 0;
  if (options_.rank == 0) std::ranges::copy(samples, std::back_inserter(tensors));
  step_ = step;
  taken_s_ = SecondsSinceBoot();
  not_taken_ = nullptr;
  try {
    snapshot_.Take(tensors);
  } catch (const std::exception&) {
    not_taken_ = std::current_exception();
  }
  manifest_ = options_.manifest;
  manifest_.MergeFrom(facts);
  if (const Retention& kept = options_.retention; !kept.best.empty()) {
    manifest_.set_best_metric(kept.best);
    manifest_.set_greater_is_better(kept.greater_is_better);
  }
  for (const auto& [part, version] : state.versions()) {
    (*manifest_.mutable_part_version())[part] = version;
  }
  {
    const std::lock_guard lock(mutex_);
    busy_ = true;
    abandoned_ = false;
    outcome_.reset();
  }
  changed_.notify_all();
}

void Saver::Release(int64_t step) {
  const std::lock_guard lock(mutex_);
  released_ = std::max(released_, step);
}

bool Saver::released() const {
  const std::lock_guard lock(mutex_);
  return released_ >= step_;
}

bool Saver::failed() const {
  const std::lock_guard lock(mutex_);
  return outcome_ && !outcome_->error.empty();
}

void Saver::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

void Saver::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
}

std::optional<Saver::Outcome> Saver::TakeOutcome() {
  const std::lock_guard lock(mutex_);
  return std::exchange(outcome_, std::nullopt);
}

void Saver::Run(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return busy_; })) return;
    }
    Outcome outcome;
    try {
      outcome = Write();
    } catch (const std::exception& error) {
      outcome.error = FirstLine(error.what());
      outcome.given_up = dynamic_cast<const GivenUp*>(&error) != nullptr;
      if (options_.rank == 0) given_up_ = step_;
    }
    outcome.step = step_;
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

// Calls `act`, whose failure does not harm the checkpoint, and turns an exception of `act` into a warning.
template <typename Act>
void Saver::OrWarn(Outcome& outcome, const Act& act) {
  try {
    act();
  } catch (const std::exception& error) {
    outcome.warning = error.what();
  }
}

Saver::Outcome Saver::Write() {
  const c10::DeviceGuard guard(device_);
  Outcome outcome;
  // Files of a failed checkpoint are removed first, because on a full disk the new checkpoint may need their space.
  OrWarn(outcome, [&] { RemoveRemains(); });
  CheckpointWriter writer({.run_dir = options_.run_dir,
                           .step = step_,
                           .attempt = options_.attempt,
                           .rank = options_.rank,
                           .ranks = options_.ranks});
  try {
    if (not_taken_) std::rethrow_exception(not_taken_);
    WriteFiles(writer);
  } catch (...) {
    writer.GiveUp();
    throw;
  }
  // After FinishPart(), rank 0 may commit the checkpoint.
  writer.FinishPart();
  outcome.snapshot_s = snapshot_.seconds();
  if (options_.rank != 0) return outcome;
  while (!released() || !writer.AllPartsAreFinished()) {
    if (!writer.AnyPartIsGivenUp() && Pause(std::chrono::steady_clock::now() + kPartsInterval)) {
      continue;
    }
    writer.GiveUp();
    throw GivenUp("another rank could not write its part");
  }
  outcome.bytes = BytesOf(writer.Commit(manifest_));
  outcome.seconds = SecondsSinceBoot() - taken_s_;
  OrWarn(outcome, [&] { RemoveOthers(options_.run_dir, options_.retention); });
  return outcome;
}

void Saver::WriteFiles(CheckpointWriter& writer) {
  written_ = 0;
  begun_ = std::chrono::steady_clock::now();
  const std::vector<NamedTensor>& tensors = snapshot_.tensors();
  const auto write = [&](const std::string& name, auto begin, auto end,
                         std::map<std::string, std::string> metadata = {}) {
    metadata.emplace("format", "pt");
    writer.WriteFile(name, [&](const AppendBytes& append) {
      const auto append_paced = [&](std::span<const std::byte> bytes) {
        append(bytes);
        written_ += static_cast<int64_t>(bytes.size());
        if (options_.bytes_per_s > 0) Pace();
      };
      AppendSafetensors(append_paced, {begin, end}, metadata,
                        [&](const at::Tensor& tensor, const AppendBytes& append_bytes) {
                          snapshot_.Append(tensor, append_bytes);
                        });
    });
  };
  const auto model_end = tensors.begin() + static_cast<std::ptrdiff_t>(model_tensors_);
  const auto state_end = tensors.end() - static_cast<std::ptrdiff_t>(samples_tensors_);
  if (options_.rank == 0) write(kModel, tensors.begin(), model_end, options_.model_metadata);
  write(StateName(options_.rank), model_end, state_end);
  if (samples_tensors_ > 0) write(kSamples, state_end, tensors.end());
}

void Saver::RemoveRemains() {
  if (!given_up_) return;
  RemovePartial(options_.run_dir, *std::exchange(given_up_, std::nullopt), options_.attempt);
}

// Waits until as much time has passed since `begun_` as writing `written_` bytes takes at options_.bytes_per_s. Throws
// GivenUp if the checkpoint is abandoned.
void Saver::Pace() {
  const std::chrono::duration<double> least(static_cast<double>(written_) / options_.bytes_per_s);
  const auto until =
      begun_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(least);
  if (!Pause(until)) throw GivenUp("it was given up");
}

// Waits until the time `until` and returns true, or returns false as soon as the checkpoint is abandoned.
bool Saver::Pause(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, until, [&] { return abandoned_; });
}

void RequireFiles(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
  std::set<std::string> names;
  for (const checkpoint::File& file : manifest.file()) names.insert(file.name());
  const auto require = [&](const std::string& name) {
    if (names.contains(name)) return;
    throw CheckpointError("{}: makes no sense: its manifest does not name {}", checkpoint.path,
                          name);
  };
  require(kModel);
  for (int rank = 0; rank < manifest.ranks(); ++rank) require(StateName(rank));
}

std::vector<std::string> StateFiles(const Checkpoint& checkpoint,
                                    const checkpoint::Manifest& manifest) {
  std::vector<std::string> files;
  for (const checkpoint::File& file : manifest.file()) {
    if (file.name().starts_with(kStatePrefix)) files.push_back(checkpoint.path + "/" + file.name());
  }
  return files;
}

std::string ModelFile(const Checkpoint& checkpoint) { return checkpoint.path + "/" + kModel; }

std::string SamplesFile(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
  const bool has = std::ranges::any_of(
      manifest.file(), [](const checkpoint::File& file) { return file.name() == kSamples; });
  return has ? checkpoint.path + "/" + kSamples : "";
}

}  // namespace lockstep
