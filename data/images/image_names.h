// Decides which files in folders and archives are images, shards, masks and labels, and makes messages about the files
// that are left out. Extensions count in capital and in small letters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns whether a file with the name `name` counts as an image, by its extension.
bool IsImageName(std::string_view name);

// These functions return whether a file with the name `name` counts as a shard, a mask, or the label of an image in a
// shard, by its extension.
bool IsShardName(std::string_view name);
bool IsMaskName(std::string_view name);
bool IsLabelName(std::string_view name);

// Counts the files and links that lie among the images and are left out, by their kind.
class LeftOut {
 public:
  enum Kind {
    kImages,  // image files of formats that Lockstep does not read
    kFiles,   // all other files
    kLinksToFolders,
    kHidden,  // hidden folders, and hidden files that are named as images (base/files/hidden_name.h)
    kLabels,         // labels in a shard that belong to no image
    kFurtherImages,  // images in a shard that are further parts of a sample
    kMasks,          // masks that belong to no image
    kKinds
  };

  // Returns kImages or kFiles, depending on the extension of `name`.
  static Kind KindOf(std::string_view name);

  void Add(Kind kind, std::string_view name) { Add(kind, 1, "", name); }
  // Adds the counts of `more`. `prefix` names the folder or archive in which the files counted by `more` lie.
  void Add(const LeftOut& more, std::string_view prefix);

  // Returns one line for each kind that was counted, with the count, the first path of this kind, and advice.
  std::vector<std::string> Lines() const;

 private:
  void Add(Kind kind, int64_t count, std::string_view prefix, std::string_view name);

  struct Some {
    int64_t count = 0;
    std::string first;  // the first path in the order of names
  };
  std::array<Some, kKinds> some_;
};

}  // namespace lockstep
