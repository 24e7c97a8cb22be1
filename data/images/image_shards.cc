#include "data/images/image_shards.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/files/hidden_name.h"
#include "base/files/readable_file.h"
#include "base/files/tar_index.h"
#include "base/in_threads.h"
#include "data/images/image_list.h"
#include "data/images/image_names.h"
#include "data/images/index_cache.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The contents of one shard.
struct Shard {
  Stamp stamp;
  TextList images;  // the names of the members
  std::vector<ImagePlace> places;
  std::unordered_map<std::string, int32_t> labels;  // the .cls members' numbers, by sample name
  // The names, without .cls, of labels that have a dot before their extension. They are no labels of samples.
  std::set<std::string, std::less<>> dotted_labels;
  LeftOut left_out;
  // These members are left out with kShards alone: with kNumberedShards a sample may have members of any kind.
  LeftOut other_files;
};

// The two parts of a member's name, which is split as in WebDataset: before the first dot after the last slash.
struct SampleName {
  std::string_view sample;
  std::string_view kind;  // begins with the dot, such as ".cls"; may be empty

  // Returns whether the member can be the image or the label of a sample: "000123.jpg" can, and "000123.mask.png" is a
  // further part of the sample 000123.
  bool HasOneDot() const { return kind.rfind('.') == 0; }
};

SampleName SampleNameOf(std::string_view member) {
  const size_t slash = member.rfind('/');
  const size_t dot = member.find('.', slash == member.npos ? 0 : slash + 1);
  if (dot == member.npos) return {member, ""};
  return {member.substr(0, dot), member.substr(dot)};
}

std::string_view WithoutExtension(std::string_view member) {
  return member.substr(0, member.rfind('.'));
}

// Returns the number that a .cls member holds. Throws Error (kData) if the member holds anything else.
int32_t ReadLabel(const ReadableFile& file, const TarMember& member) {
  constexpr int64_t kMostBytes = 64;
  std::string text(std::min(member.bytes, kMostBytes), '\0');
  text.resize(file.ReadAt(member.offset, std::as_writable_bytes(std::span(text))));
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const size_t end = std::max(begin, text.find_last_not_of(" \t\r\n") + 1);
  int32_t label = -1;
  const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, label);
  if (error != std::errc() || last != text.data() + end || label < 0 || member.bytes > kMostBytes) {
    throw DataError("{}: {}: \"{}\" is no class's number", file.path(), member.name, text);
  }
  return label;
}

// Throws Error (kData) if a link of the shard at `path` would otherwise take a sample or a class with it, and counts
// any other link that leads to no file.
void LeaveOutLink(const std::string& path, const TarMember& link, LeftOut& left_out) {
  const std::string_view name = link.name;
  const bool is_file = IsImageName(name) || IsLabelName(name);
  // A link to a folder elsewhere is recognized by its name, which usually has no extension.
  const bool is_folder =
      link.kind == TarMember::kLinkToFolder || name.find('.', name.rfind('/') + 1) == name.npos;
  if (is_file || (is_folder && name.find('/') == name.npos)) {
    throw DataError(
        "{}: {}: a link to {}, {}: pack what it leads to (tar --dereference)", path, name,
        link.target,
        link.kind == TarMember::kLinkToFolder ? "a folder" : "which this archive does not hold");
  }
  left_out.Add(is_folder ? LeftOut::kLinksToFolders : LeftOut::KindOf(name), name);
}

Shard ReadShard(const std::string& path, uint32_t number) {
  const ReadableFile file(path);
  Shard shard{.stamp = file.stamp()};
  VisitTar(file, [&](const TarMember& member) {
    const std::string_view name = member.name;
    if (HasHiddenName(name)) {
      if (IsImageName(name)) shard.left_out.Add(LeftOut::kHidden, name);
    } else if (member.kind == TarMember::kLinkToFolder ||
               member.kind == TarMember::kLinkToNothing) {
      LeaveOutLink(path, member, shard.left_out);
    } else if (IsLabelName(name)) {
      const SampleName parts = SampleNameOf(name);
      if (parts.HasOneDot()) {
        if (!shard.labels.emplace(parts.sample, ReadLabel(file, member)).second) {
          throw DataError("{}: {}: twice in this archive", path, name);
        }
      } else {
        shard.dotted_labels.emplace(WithoutExtension(name));
      }
    } else if (IsImageName(name)) {
      if (fmt::format("/{}", name).find("/../") != std::string::npos) {
        throw DataError("{}: {}: a name that leads out of its archive: pack it again", path, name);
      }
      shard.images.Add(name);
      shard.places.push_back(
          {.offset = static_cast<uint64_t>(member.offset),
           .bytes = static_cast<uint32_t>(std::min(member.bytes, kMostImageBytes + 1)),
           .shard = number});
    } else {
      const LeftOut::Kind kind = LeftOut::KindOf(name);
      (kind == LeftOut::kImages ? shard.left_out : shard.other_files).Add(kind, name);
    }
  });
  return shard;
}

// Returns whether the path `a` comes before the path `b`. Paths are compared folder by folder.
bool PathLess(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::ranges::mismatch(a, b);
  if (at_b == b.end()) return false;
  if (at_a == a.end()) return true;
  if (*at_a == '/' || *at_b == '/') return *at_a == '/';
  return static_cast<unsigned char>(*at_a) < static_cast<unsigned char>(*at_b);
}

// Identifies an image by its shard and its number in the shard.
struct Member {
  uint32_t shard;
  uint32_t number;
};

// Collects the samples of the convention kShards, sorted by class and name.
void CollectByClass(const std::vector<Shard>& shards, ImageColumns& columns) {
  columns.layout = ImageLayout::kShards;
  std::map<std::string_view, std::vector<Member>> by_class;
  std::vector<Member> unlabelled;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    for (uint32_t i = 0; i < shards[s].places.size(); ++i) {
      const std::string_view name = shards[s].images[i];
      const size_t slash = name.find('/');
      (slash == name.npos ? unlabelled : by_class[name.substr(0, slash)]).push_back({s, i});
    }
  }
  std::vector<std::vector<Member>*> groups;
  for (auto& [name, members] : by_class) groups.push_back(&members);
  groups.push_back(&unlabelled);
  const auto name_of = [&](const Member& member) {
    return shards[member.shard].images[member.number];
  };
  InThreads(ReadingThreads(), static_cast<int64_t>(groups.size()), [&](int64_t group) {
    std::ranges::stable_sort(*groups[group], [&](const Member& a, const Member& b) {
      return PathLess(name_of(a), name_of(b));
    });
  });

  const auto collect = [&](const std::vector<Member>& members, size_t prefix) {
    columns.first_of_class.push_back(columns.paths.size());
    for (const Member& member : members) {
      columns.paths.Add(name_of(member).substr(prefix));
      columns.places.push_back(shards[member.shard].places[member.number]);
    }
  };
  for (const auto& [name, members] : by_class) {
    columns.classes.Add(name);
    collect(members, name.size() + 1);
  }
  collect(unlabelled, 0);
}

// Returns whether the shard has labels as members, also if the names of images and labels have several dots.
bool HasNumbers(const Shard& shard) {
  if (!shard.labels.empty()) return true;
  if (shard.dotted_labels.empty()) return false;
  for (int64_t i = 0; i < shard.images.size(); ++i) {
    if (shard.dotted_labels.contains(WithoutExtension(shard.images[i]))) return true;
  }
  return false;
}

// Throws Error (kData) if an image of the shard at `path`, whose name has several dots, would be lost, although it is
// probably a sample: if its sample has no other image (it is not in `samples`), or if it has a label of its own. Counts
// the other images of such names.
void LeaveOutFurtherImages(const std::string& path, Shard& shard,
                           const std::unordered_map<std::string_view, int64_t>& samples) {
  int64_t lost = 0;
  std::string_view first;  // the first image that would be lost
  for (int64_t i = 0; i < shard.images.size(); ++i) {
    const std::string_view member = shard.images[i];
    const SampleName name = SampleNameOf(member);
    if (name.HasOneDot()) continue;
    if (samples.contains(name.sample) && !shard.dotted_labels.contains(WithoutExtension(member))) {
      shard.left_out.Add(LeftOut::kFurtherImages, member);
    } else if (++lost == 1) {
      first = member;
    }
  }
  if (lost == 0) return;
  const SampleName name = SampleNameOf(first);
  std::string renamed(WithoutExtension(first));
  std::replace(renamed.begin() + static_cast<int64_t>(name.sample.size()), renamed.end(), '.', '_');
  throw DataError(
      "{}: {}: an image of the sample \"{}\", as a sample's name ends at the first dot, so that {} "
      "would be lost (WebDataset's rule): give it and its .cls names with one dot, such as {}{}",
      path, first, name.sample,
      lost == 1   ? "it"
      : lost == 2 ? "it and another one"
                  : fmt::format("it and {} other images", lost - 1),
      renamed, first.substr(first.rfind('.')));
}

// Collects the samples of the convention kNumberedShards, in the order of the shards.
void CollectByNumber(const std::vector<std::string>& paths, std::vector<Shard>& shards,
                     ImageColumns& columns) {
  columns.layout = ImageLayout::kNumberedShards;
  columns.first_of_class.push_back(0);
  for (size_t s = 0; s < shards.size(); ++s) {
    Shard& shard = shards[s];
    std::unordered_map<std::string_view, int64_t> samples;  // the image of each sample
    for (int64_t i = 0; i < shard.images.size(); ++i) {
      const std::string_view member = shard.images[i];
      const SampleName name = SampleNameOf(member);
      if (!name.HasOneDot()) continue;
      if (const auto [first, fresh] = samples.emplace(name.sample, i); !fresh) {
        throw DataError("{}: {}: a second image of one sample, beside {}", paths[s], member,
                        shard.images[first->second]);
      }
      const auto label = shard.labels.find(std::string(name.sample));
      columns.paths.Add(member);
      columns.places.push_back(shard.places[i]);
      columns.labels.push_back(label == shard.labels.end() ? -1 : label->second);
    }
    LeaveOutFurtherImages(paths[s], shard, samples);
    for (const auto& [sample, label] : shard.labels) {
      if (!samples.contains(sample)) shard.left_out.Add(LeftOut::kLabels, sample + ".cls");
    }
  }
}

ImageColumns Build(const std::vector<std::string>& paths, const TextList& sources) {
  std::vector<Shard> shards(paths.size());
  InThreads(ReadingThreads(), static_cast<int64_t>(paths.size()),
            [&](int64_t i) { shards[i] = ReadShard(paths[i], static_cast<uint32_t>(i)); });
  ImageColumns columns;
  columns.sources = sources;
  const bool is_numbered = std::ranges::any_of(shards, HasNumbers);
  if (is_numbered) {
    CollectByNumber(paths, shards, columns);
  } else {
    CollectByClass(shards, columns);
  }
  LeftOut left_out;
  for (size_t i = 0; i < shards.size(); ++i) {
    columns.stamps.push_back(shards[i].stamp);
    const std::string prefix = fs::path(paths[i]).filename().string() + ": ";
    left_out.Add(shards[i].left_out, prefix);
    if (!is_numbered) left_out.Add(shards[i].other_files, prefix);
  }
  for (const std::string& line : left_out.Lines()) columns.left_out.Add(line);
  return columns;
}

bool IsCurrent(const TextList& sources, const ImageIndex& index) {
  if (index.sources().text != sources.view().text ||
      !std::ranges::equal(index.sources().ends, sources.view().ends)) {
    return false;
  }
  return StampsHold(index, [&](int64_t i) { return std::string(sources[i]); });
}

// Returns the index of the shards, from the cache if possible. The index holds the shards' absolute paths. The key of
// the cache holds the paths of options.files, so a folder has one entry in the cache, whichever shards lie in the
// folder.
ImageIndex IndexOf(const std::vector<std::string>& shards, const ImageSourceOptions& options) {
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  TextList sources;
  for (const std::string& shard : shards) sources.Add(absolute(shard));
  std::string key = "shards";
  for (const std::string& file : options.files) key += "\n" + absolute(file);
  return CachedIndex(
      key, [&](const ImageIndex& index) { return IsCurrent(sources, index); },
      [&] { return Build(shards, sources); });
}

// Keeps the most recently used shards open, at most most_ of them.
class OpenShards {
 public:
  explicit OpenShards(const std::vector<std::string>& paths) : paths_(paths) {
    rlimit limit{};
    const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    most_ = known ? std::clamp<size_t>(limit.rlim_cur / 4, 4, 4096) : 64;
  }

  // Returns the open file of `shard`, and opens it if necessary. Throws Error (kData) if the file that it opens has
  // another stamp than `stamp`.
  std::shared_ptr<const ReadableFile> Get(uint32_t shard, const Stamp& stamp) {
    if (auto file = Find(shard)) return file;
    // The lock is not held while the file is opened: a slow file system may take long, and other threads would wait for
    // the lock.
    auto file = std::make_shared<const ReadableFile>(paths_[shard]);
    if (file->stamp() != stamp) throw Changed(shard);
    Keep(shard, file);
    return file;
  }

  Error Changed(uint32_t shard) const {
    return DataError("{}: has changed since this run began: start it again", paths_[shard]);
  }

 private:
  std::shared_ptr<const ReadableFile> Find(uint32_t shard) {
    const std::lock_guard lock(mutex_);
    const auto found = place_.find(shard);
    if (found == place_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }

  void Keep(uint32_t shard, std::shared_ptr<const ReadableFile> file) {
    std::shared_ptr<const ReadableFile> dropped;  // this file is closed after the lock is released
    const std::lock_guard lock(mutex_);
    if (place_.contains(shard)) return;  // another thread has opened it meanwhile
    recent_.emplace_front(shard, std::move(file));
    place_[shard] = recent_.begin();
    if (recent_.size() <= most_) return;
    dropped = std::move(recent_.back().second);
    place_.erase(recent_.back().first);
    recent_.pop_back();
  }

  using Files = std::list<std::pair<uint32_t, std::shared_ptr<const ReadableFile>>>;

  const std::vector<std::string>& paths_;
  size_t most_;
  std::mutex mutex_;  // guards the two members below
  Files recent_;
  std::unordered_map<uint32_t, Files::iterator> place_;
};

std::string NameIn(const std::vector<std::string>& shards, const ImageIndex& index, int64_t row) {
  return fmt::format("{}: {}", shards[index.place(row).shard], index.PathWithClass(row));
}

class ImageShards : public ListedImages {
 public:
  ImageShards(const std::vector<std::string>& shards, ImageList list)
      : ListedImages(std::move(list)), shards_(shards), open_(shards_) {}

  std::string NameOf(int64_t i) const override {
    return NameIn(shards_, list_.index(), list_.RowOf(i));
  }

  std::span<const std::byte> Load(int64_t i, std::vector<std::byte>& buffer) const override {
    const ImagePlace& place = list_.index().place(list_.RowOf(i));
    if (place.bytes > kMostImageBytes) {
      throw DataError("{}: more than {} bytes are too many for an image", NameOf(i),
                      kMostImageBytes);
    }
    const auto shard = open_.Get(place.shard, list_.index().stamps()[place.shard]);
    if (buffer.size() < place.bytes) buffer.resize(place.bytes);
    const std::span<std::byte> bytes = std::span(buffer).first(place.bytes);
    const size_t got = shard->ReadAt(static_cast<int64_t>(place.offset), bytes);
    if (got < bytes.size() || !shard->Unchanged()) throw open_.Changed(place.shard);
    return bytes;
  }

  std::vector<int64_t> ChangedOf(int64_t time_ns, std::vector<int64_t> samples) const override {
    std::vector<char> is_changed(shards_.size());
    InThreads(ReadingThreads(), std::ssize(shards_),
              [&](int64_t i) { is_changed[i] = ChangedSince(shards_[i], time_ns) ? 1 : 0; });
    if (std::ranges::count(is_changed, 0) == std::ssize(is_changed)) return {};
    std::erase_if(samples, [&](int64_t i) {
      return is_changed[list_.index().place(list_.RowOf(i)).shard] == 0;
    });
    return samples;
  }

 private:
  std::vector<std::string> shards_;
  mutable OpenShards open_;
};

}  // namespace

std::shared_ptr<const ImageSource> OpenImageShards(const std::vector<std::string>& shards,
                                                   const ImageSourceOptions& options) {
  const ImageIndex index = IndexOf(shards, options);
  const auto image = [&](int64_t row) { return NameIn(shards, index, row); };
  return std::make_shared<ImageShards>(
      shards, ImageList(index, options,
                        {.all = options.files.front(), .image = image, .of_class = [&](int64_t c) {
                           return image(index.FirstOf(c));
                         }}));
}

}  // namespace lockstep
