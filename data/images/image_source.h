// ImageSource: reads encoded images by their number, from folders or shards.
//
// Promise: the list of images does not change while a source lives. Many threads may call Load() at once. Load() gives
// all bytes of a file or an error. It never gives a part of the bytes or another file's bytes.
//
// The images lie in a folder of class folders (data/images/image_folder.h) or in tar files
// (data/images/image_shards.h). Several threads list them once, and the list is kept for the next run
// (data/images/index_cache.h). If the images in a folder and in shards have the same names, they have the same numbers
// and labels.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_source_test.cc)
//   no folder, no images, tar files beside folders, compressed ones -> Error (kData) naming it
//     -> ImageSourceTest.Refuses*
//   a class, a label that was not trained on; images without a label -> Error (kData) naming one
//     -> ImageSourceTest.Refuses*
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ImageSource {
 public:
  static constexpr int64_t kNoLabel = -1;

  virtual ~ImageSource() = default;

  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual const std::vector<std::string>& class_names() const = 0;  // empty: they have none
  virtual int64_t LabelOf(int64_t i) const = 0;                     // or kNoLabel
  virtual std::string NameOf(int64_t i) const = 0;  // "FOLDER/dog/1.jpg", "a.tar: dog/1.jpg"

  // The file's bytes, in `buffer` or elsewhere; there until the buffer changes. Throws Error: kData
  // where it cannot be read, kUsage where the machine is at its limits.
  virtual std::span<const std::byte> Load(int64_t i, std::vector<std::byte>& buffer) const = 0;

  // What a user should know of how the files were taken, a line each: what lies beside the images and is
  // left out, for one.
  virtual std::vector<std::string> Remarks() const = 0;

  // What tells it from other sources, on any machine.
  virtual std::string Fingerprint() const = 0;
};

struct ImageSourceOptions {
  // One folder, which holds a folder for each class or *.tar files; or *.tar files.
  std::vector<std::string> files;
  std::vector<std::string> classes{};  // the labels' names, in order; empty: the folders in it
  int64_t class_count = 0;             // where there are no names; 0: the greatest label + 1
  bool label_optional = false;         // images outside of the classes' folders have no label
};

// Throws Error (kData, kUsage).
std::shared_ptr<const ImageSource> OpenImageSource(const ImageSourceOptions& options);

// Whether a file of that name is taken for an image.
bool IsImageName(std::string_view name);

// What lies among images and was not taken for one, counted by what it is.
class LeftOut {
 public:
  enum Kind { kImages, kFiles, kLinksToFolders, kKinds };  // images: of other kinds

  // kImages or kFiles, by the name.
  static Kind KindOf(std::string_view name);

  void Add(Kind kind, std::string_view name) { Add(kind, 1, "", name); }
  // What lies in the folder or archive that `prefix` names.
  void Add(const LeftOut& more, std::string_view prefix);

  // A line of each kind, with the first path of it and what can be done.
  std::vector<std::string> Lines() const;

 private:
  void Add(Kind kind, int64_t count, std::string_view prefix, std::string_view name);

  struct Some {
    int64_t count = 0;
    std::string first;  // by name
  };
  std::array<Some, kKinds> some_;
};

// Whether a file of that name is taken for a shard.
bool IsShardName(std::string_view name);

}  // namespace lockstep
