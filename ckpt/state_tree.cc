#include "ckpt/state_tree.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/in_threads.h"

namespace lockstep {
namespace {

// Returns the end of a piece's name, such as "[0:500]".
std::string RangeText(int64_t begin, int64_t end) { return fmt::format("[{}:{}]", begin, end); }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// If `name` is the name of a piece, removes the range at its end and returns the range. Otherwise returns nothing.
std::optional<Range> TakeRange(std::string& name) {
  const size_t open = name.rfind('[');
  if (open == std::string::npos || !name.ends_with(']')) return std::nullopt;
  Range range;
  const char* const last = name.data() + name.size() - 1;
  const auto [colon, first_error] = std::from_chars(name.data() + open + 1, last, range.begin);
  if (first_error != std::errc() || colon == last || *colon != ':') return std::nullopt;
  const auto [end, second_error] = std::from_chars(colon + 1, last, range.end);
  if (second_error != std::errc() || end != last) return std::nullopt;
  name.resize(open);
  return range;
}

constexpr char kOwnMark = '@';

std::string OwnName(const std::string& name, int rank) {
  return fmt::format("{}{}{}", name, kOwnMark, rank);
}

std::string ShapeText(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

template <typename Value>
StateEntry EntryOf(const std::string& name, Value& value, at::ScalarType dtype) {
  return {.name = name,
          .get = [&value, dtype] { return at::scalar_tensor(value, at::TensorOptions(dtype)); },
          .set = [&value](const at::Tensor& tensor) { value = tensor.item<Value>(); }};
}

StateEntry EntryOf(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .get = [tensor] { return tensor; },
          .set =
              [tensor](const at::Tensor& saved) {
                const at::NoGradGuard no_grad;
                tensor.copy_(saved);
              }};
}

// Finds and reads tensors in several files by their names. Several threads may read at the same time.
class SavedTensors {
 public:
  explicit SavedTensors(const std::vector<std::string>& paths) {
    files_.reserve(paths.size());
    for (const std::string& path : paths) {
      const SafetensorsFile& file = files_.emplace_back(path, kInCheckpoint);
      for (std::string name : file.names()) {
        const std::string whole_name = name;
        if (const std::optional<Range> range = TakeRange(name)) {
          pieces_[name].push_back({*range, whole_name, &file});
        } else {
          whole_[name] = &file;
        }
      }
    }
    for (auto& [name, list] : pieces_) {
      std::ranges::sort(list, {}, [](const Piece& piece) { return piece.range.begin; });
    }
  }

  // Reads the tensor `name`. Throws Error (kCheckpoint) if no tensor that was saved whole has that name.
  at::Tensor Read(const std::string& name) {
    const auto found = whole_.find(name);
    if (found == whole_.end()) throw CheckpointError("{}: {} is not in it", Place(), name);
    MarkUsed(name);
    return found->second->Read(name);
  }

  // Reads the tensor `name`. Throws Error (kCheckpoint) if no tensor that was saved whole has that name, or if the
  // tensor's dtype or shape differs from that of `like`.
  at::Tensor Read(const std::string& name, const at::Tensor& like) {
    const at::Tensor tensor = Read(name);
    RequireLike(tensor, like, name);
    return tensor;
  }

  bool Has(const std::string& name) const { return whole_.contains(name); }

  // Fills `whole`, a tensor on the CPU, from the pieces of the tensor `name`, or from that tensor itself if it was
  // saved whole. Returns `whole`.
  at::Tensor ReadInto(const at::Tensor& whole, const std::string& name) {
    const auto pieces = pieces_.find(name);
    if (pieces == pieces_.end()) return whole.copy_(Read(name, whole));
    MarkUsed(name);
    const at::Tensor flat = whole.as_strided({whole.numel()}, {1}, 0);
    int64_t end = 0;
    for (const Piece& piece : pieces->second) {
      const auto [from, to] = piece.range;
      if (from != end || to < from || to > whole.numel()) break;
      const at::Tensor tensor = piece.file->Read(piece.name);
      RequireLike(tensor, flat.narrow(0, from, to - from), piece.name);
      flat.narrow(0, from, to - from).copy_(tensor);
      end = to;
    }
    if (end != whole.numel()) {
      throw CheckpointError("{}: {} is not whole: elements from {} on are missing", Place(), name,
                            end);
    }
    return whole;
  }

  // Throws Error (kCheckpoint) if a shared tensor or a piece has not been read.
  void RequireAllUsed() const {
    const auto require = [&](const std::string& name) {
      if (used_.contains(name) || name.find(kOwnMark) != std::string::npos) return;
      throw CheckpointError("{}: {}: this program has no place for it", Place(), name);
    };
    for (const auto& [name, file] : whole_) require(name);
    for (const auto& [name, pieces] : pieces_) require(name);
  }

 private:
  struct Piece {
    Range range;
    std::string name;
    const SafetensorsFile* file;
  };

  void MarkUsed(const std::string& name) {
    const std::lock_guard lock(mutex_);
    used_.insert(name);
  }

  std::string Place() const { return files_.empty() ? "checkpoint" : files_.front().path(); }

  void RequireLike(const at::Tensor& tensor, const at::Tensor& like,
                   const std::string& name) const {
    if (tensor.scalar_type() == like.scalar_type() && tensor.sizes() == like.sizes()) return;
    throw CheckpointError("{}: {} is {} where this run has {}", Place(), name, ShapeText(tensor),
                          ShapeText(like));
  }

  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> whole_;
  std::map<std::string, std::vector<Piece>> pieces_;
  std::mutex mutex_;
  std::set<std::string> used_;  // guarded by mutex_
};

void RequireKnownVersions(const std::map<std::string, int>& known,
                          const std::map<std::string, int>& saved) {
  for (const auto& [part, version] : saved) {
    const auto found = known.find(part);
    if (found == known.end() || version > found->second) {
      throw CheckpointError(
          "the checkpoint's {} is of version {}; this program's is {}: take a newer program", part,
          version, found == known.end() ? 0 : found->second);
    }
  }
}

}  // namespace

void StateTree::BeginPart(const std::string& part, int version) {
  part_ = part;
  if (!versions_.emplace(part, version).second) throw BugError("two parts of state are {}", part);
}

void StateTree::Add(StateEntry entry, std::function<void()> if_missing) {
  entry.name = part_ + "." + entry.name;
  entry.if_missing = std::move(if_missing);
  for (const StateEntry& other : entries_) {
    if (other.name == entry.name) throw BugError("two pieces of state are {}", entry.name);
  }
  entries_.push_back(std::move(entry));
}

void StateTree::Add(const std::string& name, const at::Tensor& tensor,
                    std::function<void()> if_missing) {
  Add(EntryOf(name, tensor), std::move(if_missing));
}

void StateTree::Add(const std::string& name, int64_t& value, std::function<void()> if_missing) {
  Add(EntryOf(name, value, at::kLong), std::move(if_missing));
}

void StateTree::Add(const std::string& name, double& value, std::function<void()> if_missing) {
  Add(EntryOf(name, value, at::kDouble), std::move(if_missing));
}

void StateTree::AddOwn(const std::string& name, const at::Tensor& tensor) {
  StateEntry entry = EntryOf(name, tensor);
  entry.kind = StateEntry::Kind::kOwn;
  Add(std::move(entry));
}

void StateTree::AddOwn(const std::string& name, std::function<at::Tensor()> get,
                       std::function<void(const at::Tensor&)> set) {
  Add({.name = name, .kind = StateEntry::Kind::kOwn, .get = std::move(get), .set = std::move(set)});
}

void StateTree::AddPiece(const std::string& name, const at::Tensor& tensor, int64_t begin,
                         const at::Tensor& whole) {
  StateEntry entry = EntryOf(name, tensor);
  entry.kind = StateEntry::Kind::kPiece;
  entry.begin = begin;
  entry.whole_sizes = whole.sizes().vec();
  entry.whole_strides = whole.strides().vec();
  Add(std::move(entry));
}

std::vector<NamedTensor> PartOf(const StateTree& state, int rank, int ranks, int64_t first_bytes) {
  std::vector<NamedTensor> part;
  std::vector<int64_t> load(ranks);
  load[0] = first_bytes;
  for (const StateEntry& entry : state.entries()) {
    const at::Tensor tensor = entry.get();
    switch (entry.kind) {
      case StateEntry::Kind::kOwn:
        part.push_back({OwnName(entry.name, rank), tensor});
        break;
      case StateEntry::Kind::kPiece:
        part.push_back({entry.name + RangeText(entry.begin, entry.begin + tensor.numel()), tensor});
        break;
      case StateEntry::Kind::kShared: {
        const auto least = std::ranges::min_element(load);
        if (least - load.begin() == rank) part.push_back({entry.name, tensor});
        *least += static_cast<int64_t>(tensor.nbytes());
        break;
      }
    }
  }
  return part;
}

at::Tensor ReadShared(const std::vector<std::string>& files, const std::string& name) {
  return SavedTensors(files).Read(name);
}

void Restore(const StateTree& state, const std::vector<std::string>& files,
             const std::map<std::string, int>& versions, const RestoreOptions& options) {
  RequireKnownVersions(state.versions(), versions);
  SavedTensors saved(files);
  struct Found {
    const StateEntry* entry;
    std::function<at::Tensor()> read;
    at::Tensor tensor;
  };
  std::vector<Found> found;
  const auto find = [&](const StateEntry& entry, std::function<at::Tensor()> read) {
    found.push_back({&entry, std::move(read), {}});
  };
  for (const StateEntry& entry : state.entries()) {
    const at::Tensor like = entry.get();
    switch (entry.kind) {
      case StateEntry::Kind::kOwn: {
        const std::string name = OwnName(entry.name, options.rank);
        if (!options.as_many_ranks || !saved.Has(name)) break;
        find(entry, [&saved, name, like] { return saved.Read(name, like); });
        break;
      }
      case StateEntry::Kind::kPiece:
        find(entry, [&saved, &entry, like] {
          const at::Tensor whole =
              at::empty_strided(entry.whole_sizes, entry.whole_strides, like.scalar_type());
          return saved.ReadInto(whole, entry.name)
              .as_strided({like.numel()}, {1}, entry.begin)
              .clone();
        });
        break;
      case StateEntry::Kind::kShared:
        find(entry, [&saved, &entry, like] {
          if (saved.Has(entry.name)) return saved.Read(entry.name, like);
          if (entry.if_missing) return at::Tensor();
          // The run that saved this tensor had divided the tensor into pieces.
          return saved.ReadInto(at::empty_strided(like.sizes(), like.strides(), like.scalar_type()),
                                entry.name);
        });
        break;
    }
  }
  InThreads(ReadingThreads(), std::ssize(found),
            [&](int64_t i) { found[i].tensor = found[i].read(); });
  if (!options.sharded) saved.RequireAllUsed();
  for (const Found& one : found) {
    if (one.tensor.defined()) {
      one.entry->set(one.tensor);
    } else {
      one.entry->if_missing();
    }
  }
}

}  // namespace lockstep
