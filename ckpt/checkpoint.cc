#include "ckpt/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/best_so_far.h"
#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/open_file.h"
#include "base/files/output_file.h"
#include "base/files/xxh3.h"
#include "base/in_threads.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kFormat = 1;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";
constexpr const char* kManifest = "/manifest.pb";

std::string FolderOf(const std::string& run_dir) { return run_dir + "/checkpoints"; }

std::string PathOf(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/{}{:012}", FolderOf(run_dir), kPrefix, step);
}

// Returns the step in the folder name of a committed checkpoint, or nothing if `name` is not such a name.
std::optional<int64_t> StepIn(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::string PartialPathOf(const std::string& run_dir, int64_t step, const std::string& attempt) {
  return fmt::format("{}.{}{}", PathOf(run_dir, step), attempt, kPartial);
}

[[noreturn]] void Fail(const std::string& path, const char* what) {
  throw CheckpointError("{}: cannot be {}: {}", path, what, std::strerror(errno));
}

void Unlink(const std::string& path) {
  if (unlink(path.c_str()) != 0) Fail(path, "removed");
}

// Returns the names in the folder. If the folder does not exist, returns no names.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (fs::is_symlink(folder, error)) {
    throw CheckpointError(
        "{}: it is a link: a run's own folders are none; make the run folder "
        "itself the link where it is to lie elsewhere",
        folder);
  }
  error.clear();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError("{}: cannot be read: {}", folder, error.message());
  }
  return names;
}

// Removes the folder. If `path` is a link, removes only the link, and nothing to which the link leads.
void RemoveFolder(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0 && (errno == ELOOP || errno == ENOTDIR)) {
    Unlink(path);
    return;
  }
  for (const std::string& name : NamesIn(path)) {
    if (unlinkat(folder.get(), name.c_str(), 0) != 0) Fail(path + "/" + name, "removed");
  }
  if (rmdir(path.c_str()) != 0) Fail(path, "removed");
}

// Calls `take` with the file's content, in pieces of at most 1 MiB. Throws Error (kCheckpoint) if the file cannot be
// read, or if `bytes` is not -1 and the file does not have this size.
void ReadPieces(const std::string& path, int64_t bytes,
                const std::function<void(std::span<const std::byte>)>& take) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::string why;
  const FileDescriptor file = OpenPlainFile(path, kInCheckpoint, O_RDONLY, why);
  if (file.get() < 0) throw CheckpointError("{}: cannot be opened: {}", path, why);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) Fail(path, "read");
  if (bytes >= 0 && status.st_size != bytes) {
    throw CheckpointError("{}: has {} bytes where the manifest says {}", path,
                          static_cast<int64_t>(status.st_size), bytes);
  }
  std::vector<std::byte> piece(kPiece);
  std::optional<size_t> got = kPiece;
  for (int64_t offset = 0; *got == kPiece; offset += kPiece) {
    got = ReadAt(file, offset, piece);
    if (!got) Fail(path, "read");
    take(std::span(piece).first(*got));
  }
}

void VerifyFile(const std::string& path, const checkpoint::File& file) {
  Xxh3 hash;
  ReadPieces(path, file.bytes(), [&](std::span<const std::byte> piece) { hash.Add(piece); });
  if (hash.value() != file.xxh3()) {
    throw CheckpointError("{}: is damaged: its checksum is not the manifest's", path);
  }
}

// Divides the manifest's files into `parts` parts, and calls act(path, file) for each file of part number `part`.
// Several threads make these calls.
template <typename Act>
void ForPart(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest, int part,
             int parts, const Act& act) {
  const int files = CeilDivide(manifest.file_size() - part, parts);
  InThreads(ReadingThreads(), files, [&](int64_t i) {
    const checkpoint::File& file = manifest.file(part + static_cast<int>(i) * parts);
    act(checkpoint.path + "/" + file.name(), file);
  });
}

// Returns whether the config in the manifest is for samples with several labels. In a printed config each field has a
// line of its own.
bool HasSeveralLabels(const checkpoint::Manifest& manifest) {
  constexpr std::string_view kField = "task: MULTI_LABEL";
  const std::string_view config = manifest.config();
  for (size_t at = 0; (at = config.find(kField, at)) != config.npos; at += kField.size()) {
    const size_t line = config.rfind('\n', at) + 1;  // npos + 1 is 0
    const std::string_view before = config.substr(line, at - line);
    const std::string_view after = config.substr(at + kField.size());
    if (before.find_first_not_of(' ') == before.npos && (after.empty() || after[0] == '\n')) {
      return true;
    }
  }
  return false;
}

// Gives the metrics of a run that began with older definitions today's names.
void BringUpToDate(checkpoint::Manifest& manifest) {
  static constexpr char kBefore[] = "accuracy";
  static constexpr char kNow[] = "label_accuracy";
  if (manifest.metric_definitions() >= kMetricDefinitions || !HasSeveralLabels(manifest)) return;
  if (manifest.best_metric() == kBefore) manifest.set_best_metric(kNow);
  auto& metrics = *manifest.mutable_metric();
  const auto is_now = [](const checkpoint::Metric& metric) { return metric.name() == kNow; };
  if (std::ranges::any_of(metrics, is_now)) return;  // today's program saved these metrics
  for (checkpoint::Metric& metric : metrics) {
    if (metric.name() == kBefore) metric.set_name(kNow);
  }
}

// Returns the value of the metric `name` if the checkpoint was evaluated at its own step and the value is not NaN.
// Otherwise returns NaN.
double ValueOf(const checkpoint::Manifest& manifest, const std::string& name) {
  if (manifest.metric_step() == manifest.step()) {
    for (const checkpoint::Metric& metric : manifest.metric()) {
      if (metric.name() == name) return metric.value();
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// The result of RankingOf(), which compares checkpoints (passed with the newest first) by a metric.
struct Ranking {
  std::optional<Checkpoint> best;  // the first checkpoint with the best value
  std::set<int64_t> unknown;       // steps whose manifests cannot be read
  std::optional<Error> first_error;
};

Ranking RankingOf(const std::vector<Checkpoint>& checkpoints, const std::string& name,
                  bool greater_is_better) {
  Ranking ranking;
  BestSoFar best(greater_is_better);
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    try {
      if (best.Add(ValueOf(ReadManifest(*checkpoint), name))) ranking.best = *checkpoint;
    } catch (const Error& error) {
      ranking.unknown.insert(checkpoint->step);
      if (!ranking.first_error) ranking.first_error = error;
    }
  }
  return ranking;
}

// Returns whether `name` can only name a file directly in the checkpoint's folder, other than the manifest.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name != &kManifest[1] &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// Describes a part of the manifest that no version of Lockstep would write. Returns an empty text if there is no such
// part.
std::string WhatMakesNoSense(const checkpoint::Manifest& manifest) {
  constexpr int kMostRanks = 1 << 20;
  if (manifest.format() < 1) return fmt::format("format {}", manifest.format());
  if (manifest.ranks() < 1 || manifest.ranks() > kMostRanks) {
    return fmt::format("{} ranks", manifest.ranks());
  }
  if (manifest.file_size() == 0) return "it names no files";
  std::set<std::string_view> names;
  int64_t bytes = 0;
  for (const checkpoint::File& file : manifest.file()) {
    if (!IsPlainName(file.name())) {
      return fmt::format("a file \"{}\", which would not lie in its folder", file.name());
    }
    if (!names.insert(file.name()).second) return fmt::format("{} twice", file.name());
    if (file.bytes() < 0 || __builtin_add_overflow(bytes, file.bytes(), &bytes)) {
      return fmt::format("{} of {} bytes", file.name(), file.bytes());
    }
  }
  return "";
}

std::string ReadSmall(const std::string& path) {
  constexpr size_t kMost = size_t{64} << 20;
  std::string content;
  ReadPieces(path, -1, [&](std::span<const std::byte> piece) {
    content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (content.size() > kMost) throw CheckpointError("{}: is too large", path);
  });
  return content;
}

}  // namespace

CheckpointWriter::CheckpointWriter(Options options)
    : options_(std::move(options)),
      folder_(PartialPathOf(options_.run_dir, options_.step, options_.attempt)) {
  MakeFolder(FolderOf(options_.run_dir), kSaving);
  if (options_.rank == 0) SyncFolder(options_.run_dir, kSaving);
  MakeFolder(folder_, kSaving);
}

std::string CheckpointWriter::PartPath(int rank) const {
  return fmt::format("{}/part-{}.pb", folder_, rank);
}

std::string CheckpointWriter::GivenUpPath(int rank) const {
  return fmt::format("{}/part-{}.given_up", folder_, rank);
}

void CheckpointWriter::WriteFile(const std::string& name,
                                 const std::function<void(const AppendBytes&)>& write) {
  Xxh3 hash;
  int64_t written = 0;
  begun_.push_back(folder_ + "/" + name);
  WriteDurably(folder_ + "/" + name, kInCheckpoint, [&](const AppendBytes& append) {
    write([&](std::span<const std::byte> bytes) {
      append(bytes);
      hash.Add(bytes);
      written += static_cast<int64_t>(bytes.size());
    });
  });
  checkpoint::File& entry = *part_.add_file();
  entry.set_name(name);
  entry.set_bytes(written);
  entry.set_xxh3(hash.value());
}

void CheckpointWriter::FinishPart() {
  WriteFileAtomically(PartPath(options_.rank), part_.SerializeAsString());
}

void CheckpointWriter::GiveUp() noexcept {
  for (const std::string& path : begun_) unlink(path.c_str());
  const FileDescriptor told(
      open(GivenUpPath(options_.rank).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}

bool CheckpointWriter::AnyPartIsGivenUp() const {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (access(GivenUpPath(rank).c_str(), F_OK) == 0) return true;
  }
  return false;
}

bool CheckpointWriter::AllPartsAreFinished() const {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (access(PartPath(rank).c_str(), F_OK) != 0) return false;
  }
  return true;
}

checkpoint::Manifest CheckpointWriter::Commit(const checkpoint::Manifest& facts) {
  checkpoint::Manifest manifest = facts;
  manifest.set_format(kFormat);
  manifest.set_step(options_.step);
  manifest.set_ranks(options_.ranks);
  manifest.clear_file();
  std::set<std::string> names;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    checkpoint::Part part;
    if (!part.ParseFromString(ReadSmall(PartPath(rank)))) {
      throw CheckpointError("{}: is damaged", PartPath(rank));
    }
    for (const checkpoint::File& file : part.file()) {
      if (!names.insert(file.name()).second) throw BugError("two ranks wrote {}", file.name());
      *manifest.add_file() = file;
    }
  }
  checkpoint::SealedManifest sealed;
  sealed.set_manifest(manifest.SerializeAsString());
  sealed.set_xxh3(Xxh3Of(sealed.manifest()));
  for (int rank = 0; rank < options_.ranks; ++rank) Unlink(PartPath(rank));
  WriteFileAtomically(folder_ + kManifest, sealed.SerializeAsString());
  RenameWithoutReplacing(folder_, PathOf(options_.run_dir, options_.step), kSaving);
  SyncFolder(FolderOf(options_.run_dir), kSaving);
  return manifest;
}

Checkpoint CheckpointOf(const std::string& run_dir, int64_t step) {
  return {PathOf(run_dir, step), step};
}

std::string RequestPath(const std::string& run_dir) { return run_dir + "/checkpoint.request"; }

std::string StopPath(const std::string& run_dir) { return run_dir + "/STOP"; }

std::vector<Checkpoint> ListCheckpoints(const std::string& run_dir) {
  std::vector<Checkpoint> checkpoints;
  for (const std::string& name : NamesIn(FolderOf(run_dir))) {
    if (const std::optional<int64_t> step = StepIn(name)) {
      checkpoints.push_back({FolderOf(run_dir) + "/" + name, *step});
    }
  }
  std::ranges::sort(checkpoints, std::greater(), &Checkpoint::step);
  return checkpoints;
}

checkpoint::Manifest ReadManifest(const Checkpoint& checkpoint) {
  const std::string path = checkpoint.path + kManifest;
  checkpoint::SealedManifest sealed;
  checkpoint::Manifest manifest;
  if (!sealed.ParseFromString(ReadSmall(path)) || !sealed.has_xxh3() ||
      Xxh3Of(sealed.manifest()) != sealed.xxh3() || !manifest.ParseFromString(sealed.manifest())) {
    throw CheckpointError("{}: is damaged", path);
  }
  if (manifest.format() > kFormat) {
    throw CheckpointError(
        "{}: format {} of Lockstep {}; this is a program for {}: take a newer one", path,
        manifest.format(), manifest.lockstep_version(), kFormat);
  }
  if (const std::string wrong = WhatMakesNoSense(manifest); !wrong.empty()) {
    throw CheckpointError("{}: makes no sense: {}", path, wrong);
  }
  if (manifest.step() != checkpoint.step) {
    throw CheckpointError("{}: is of step {}: the folder has another one's name", path,
                          manifest.step());
  }
  BringUpToDate(manifest);
  return manifest;
}

int64_t BytesOf(const checkpoint::Manifest& manifest) {
  int64_t bytes = 0;
  for (const checkpoint::File& file : manifest.file()) bytes += file.bytes();
  return bytes;
}

void VerifyCheckpoint(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest, int part,
                      int parts) {
  ForPart(checkpoint, manifest, part, parts, VerifyFile);
}

void ReadAhead(const Checkpoint& checkpoint, int part, int parts) {
  // Every file is read to its end, because posix_fadvise() would make the system read only the first megabyte of it.
  ForPart(checkpoint, ReadManifest(checkpoint), part, parts,
          [](const std::string& path, const checkpoint::File& file) {
            ReadPieces(path, file.bytes(), [](std::span<const std::byte>) {});
          });
}

void SetAside(const Checkpoint& checkpoint) {
  int number = 1;
  const auto name = [&] { return fmt::format("{}.aside.{}", checkpoint.path, number); };
  while (fs::exists(name())) ++number;
  RenameFile(checkpoint.path, name(), kSaving);
  SyncFolder(fs::path(checkpoint.path).parent_path().string(), kSaving);
}

void RemoveCheckpoint(const Checkpoint& checkpoint) {
  const std::string removed = checkpoint.path + std::string(kRemoved);
  RenameFile(checkpoint.path, removed, kSaving);
  SyncFolder(fs::path(removed).parent_path().string(), kSaving);
  RemoveFolder(removed);
}

std::optional<Checkpoint> BestCheckpoint(const std::string& run_dir) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  for (const Checkpoint& checkpoint : checkpoints) {
    try {
      // The newest readable manifest names the metric by which the run keeps its best checkpoint.
      const checkpoint::Manifest newest = ReadManifest(checkpoint);
      if (newest.best_metric().empty()) return std::nullopt;
      return RankingOf(checkpoints, newest.best_metric(), newest.greater_is_better()).best;
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

void RemoveOthers(const std::string& run_dir, const Retention& retention) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  Ranking ranking;
  if (!retention.best.empty()) {
    ranking = RankingOf(checkpoints, retention.best, retention.greater_is_better);
  }
  std::optional<Error> first_error = ranking.first_error;
  for (size_t i = retention.newest; i < checkpoints.size(); ++i) {
    const int64_t step = checkpoints[i].step;
    if ((ranking.best && step == ranking.best->step) || ranking.unknown.contains(step)) continue;
    if (retention.every_steps > 0 && step % retention.every_steps == 0) continue;
    try {
      RemoveCheckpoint(checkpoints[i]);
    } catch (const Error& error) {
      if (!first_error) first_error = error;
    }
  }
  if (first_error) throw *first_error;
}

void RemovePartial(const std::string& run_dir, int64_t step, const std::string& attempt) {
  const std::string path = PartialPathOf(run_dir, step, attempt);
  if (fs::exists(path)) RemoveFolder(path);
}

void RemoveLeftovers(const std::string& run_dir) {
  for (const std::string& name : NamesIn(FolderOf(run_dir))) {
    if (name.ends_with(kPartial) || name.ends_with(kRemoved)) {
      RemoveFolder(FolderOf(run_dir) + "/" + name);
    }
  }
}

}  // namespace lockstep
