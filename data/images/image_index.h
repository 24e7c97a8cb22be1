// ImageIndex: the list of a data set's images, in order. The list lies in memory or in a memory-mapped file.
//
// Promise: an index that FromFile() returns equals the index that Write() wrote. In the index, a sample takes as many
// bytes as its name has, and 8 more. A sample in a shard takes 16 bytes in addition with kShards, and 20 with
// kNumberedShards.
//
// Invariants:
//   1. Samples of one class lie together. Classes are in the order of their names, and so are the samples of a class
//      (by folders, as std::filesystem::path compares). Samples without a label come last. None of this holds for
//      kNumberedShards, where a .cls member holds the label: the samples are then in the order of the shards and of the
//      members in each shard.
//   2. A file has a header, facts (what was listed, with stamps to compare) and content. Two checksums (XXH3) cover the
//      whole file. content_hash() depends only on the images' names, their labels, and their places in folders or
//      shards. It does not depend on times, or on the path below which the data set is mounted.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_index_test.cc)
//   bytes of another version, cut short, changed anywhere -> FromFile() returns nothing
//     -> ImageIndex.RefusesEveryCutAndEveryDamagedByte
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/files/readable_file.h"

namespace lockstep {

// A view of a list of texts that lie one after the other in one string. ends[i] is the end of text i.
struct Texts {
  std::span<const uint64_t> ends;
  std::string_view text;

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  std::string_view operator[](int64_t i) const {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return text.substr(begin, ends[i] - begin);
  }
};

// A list of texts that owns its memory.
class TextList {
 public:
  void Add(std::string_view text) {
    text_ += text;
    ends_.push_back(text_.size());
  }
  // Adds one text that consists of two parts.
  void Add(std::string_view head, std::string_view tail) {
    text_ += head;
    Add(tail);
  }
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view operator[](int64_t i) const { return view()[i]; }
  Texts view() const { return {ends_, text_}; }

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
};

enum class ImageLayout : uint32_t {
  kFolders,         // files in a folder for each class
  kShards,          // tar files, whose members lie in a folder for each class
  kNumberedShards,  // tar files, whose members have a class number in a member beside them
};

// The place of an image in the shards: `bytes` bytes from `offset` on, in the shard with the index `shard`.
struct ImagePlace {
  uint64_t offset = 0;
  uint32_t bytes = 0;  // a size above kMostImageBytes is stored as kMostImageBytes + 1
  uint32_t shard = 0;
};

inline constexpr int64_t kMostImageBytes = int64_t{1} << 30;

struct ImageColumns {
  ImageLayout layout = ImageLayout::kFolders;
  TextList sources;           // the folders that were listed, or the shards
  TextList left_out;          // a line for each kind of entry that was left out, with the reason
  std::vector<Stamp> stamps;  // the stamp of each source, taken before the source was read
  TextList classes;           // the names of the classes; empty with kNumberedShards
  // The index of the first sample of each class, and then that of the first sample without a label.
  std::vector<uint64_t> first_of_class;
  TextList paths;                  // the path of each sample below its class's folder
  std::vector<ImagePlace> places;  // with shards: the place of each sample's image
  std::vector<int32_t> labels;     // with kNumberedShards: each sample's label; -1: no label
};

class ImageIndex {
 public:
  explicit ImageIndex(ImageColumns columns);

  // Returns the index that Write() wrote to `file` for `key`. The index keeps `file` mapped. Returns nullopt if `file`
  // is damaged, was not written by Write(), or was written for another key.
  static std::optional<ImageIndex> FromFile(MappedFile file, std::string_view key);

  // Calls write(bytes) with the bytes of the index file, piece by piece.
  void Write(std::string_view key,
             const std::function<void(std::span<const std::byte>)>& write) const;

  int64_t size() const { return paths_.size(); }
  ImageLayout layout() const { return layout_; }
  const Texts& sources() const { return sources_; }
  const Texts& left_out() const { return left_out_; }
  std::span<const Stamp> stamps() const { return stamps_; }
  const Texts& classes() const { return classes_; }
  // Returns the class of a sample as its index in classes(), or classes().size() if the sample has no label.
  int64_t ClassOf(int64_t sample) const;
  // Returns the first sample of class c. The samples of class c are [FirstOf(c), FirstOf(c + 1)).
  int64_t FirstOf(int64_t c) const;
  std::string_view path(int64_t sample) const { return paths_[sample]; }
  // Returns the path of a sample, such as "dog/1.jpg". If the sample has a class with a name, the path begins with this
  // name.
  std::string PathWithClass(int64_t sample) const;
  const ImagePlace& place(int64_t sample) const { return places_[sample]; }
  std::span<const int32_t> labels() const { return labels_; }
  uint64_t content_hash() const { return content_hash_; }

 private:
  ImageIndex() = default;

  using Pieces = std::array<std::span<const std::byte>, 14>;
  Pieces PiecesOf(std::string_view key) const;

  // The memory to which the views below point. Either columns_ or file_ is set.
  std::shared_ptr<const ImageColumns> columns_;
  std::shared_ptr<const MappedFile> file_;

  ImageLayout layout_ = ImageLayout::kFolders;
  Texts sources_;
  Texts left_out_;
  std::span<const Stamp> stamps_;
  Texts classes_;
  std::span<const uint64_t> first_of_class_;
  Texts paths_;
  std::span<const ImagePlace> places_;
  std::span<const int32_t> labels_;
  uint64_t content_hash_ = 0;
};

}  // namespace lockstep
