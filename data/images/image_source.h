// ImageSource: reads encoded images by their number, from folders or shards.
//
// Promise: the list of images does not change while a source lives. Many threads may call Load() at once. Load() gives
// all bytes of a file or an error. It never gives a part of the bytes or another file's bytes.
//
// The images lie in a folder of class folders (data/images/image_folder.h) or in tar files
// (data/images/image_shards.h). Several threads list them once, and the list is cached for the next run
// (data/images/index_cache.h). If a folder and a set of shards hold images of the same names in class folders, each
// image has the same number and label in both.
//
// what can fail: see data/images/open_images.h
#pragma once

#include <cstddef>
#include <cstdint>
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
  // Returns the names of the classes in the order of the labels, or an empty list if the classes have no names.
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual int64_t LabelOf(int64_t i) const = 0;  // may be kNoLabel
  // Returns the name of sample i in messages, for example "FOLDER/dog/1.jpg" or "a.tar: dog/1.jpg".
  virtual std::string NameOf(int64_t i) const = 0;
  // Returns the path of sample i within the folder or the tar file, such as "dog/1.jpg".
  virtual std::string PathOf(int64_t i) const = 0;

  // Returns the bytes of the file of sample i. The bytes lie in `buffer` or in other memory, and are valid until
  // `buffer` changes. Throws Error: kData if the file cannot be read, kUsage if a limit of the machine is reached, such
  // as that of open files.
  virtual std::span<const std::byte> Load(int64_t i, std::vector<std::byte>& buffer) const = 0;

  // Returns those of `samples`, which ascend, whose file or shard was changed, copied or renamed at `time_ns` (Unix
  // time) or later. Returns none if the samples lie in so many files that asking for all would take seconds.
  virtual std::vector<int64_t> ChangedOf(int64_t time_ns, std::vector<int64_t> samples) const = 0;

  // Returns lines that tell the user how the files were interpreted, for example which other files lie beside the
  // images and are left out.
  virtual std::vector<std::string> Remarks() const = 0;

  // Returns a text that differs between sources whose images have other names, classes or places in shards, and that is
  // the same on all machines.
  virtual std::string Fingerprint() const = 0;
};

struct ImageSourceOptions {
  // One folder that holds either a folder for each class or *.tar files; or a list of *.tar files.
  std::vector<std::string> files;
  // The names of the labels, in order; empty: the names of the class folders.
  std::vector<std::string> classes{};
  // The number of classes if they have no names; 0: the greatest label + 1.
  int64_t class_count = 0;
  // Whether images outside the class folders are accepted, as samples without a label.
  bool label_optional = false;
};

}  // namespace lockstep
