// MNIST's idx files are described at http://yann.lecun.com/exdb/mnist, in the section 'FILE FORMATS'. A file has a
// big-endian magic number (0, 0, type, dimensions), a big-endian size for each dimension, and then one byte for each
// element.

#include "data/arrays/mnist.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/dataset/in_memory.h"

namespace lockstep {
namespace {

constexpr uint32_t kUnsignedBytes = 0x08;

uint32_t BigEndian32(const std::string& content, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value = value << 8 | static_cast<unsigned char>(content[offset + i]);
  return value;
}

struct Idx {
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;
};

// Reads the file `path`, and adds it to `contents`.
Idx ReadIdx(const std::string& path, uint32_t dimensions, DataContents& contents) {
  const std::string content = ReadWholeFile(path);
  contents.AddFile(path, content);
  const size_t header = 4 + 4 * size_t{dimensions};
  if (content.starts_with("\x1f\x8b")) {
    throw DataError("{}: the file is compressed: run gunzip on it first", path);
  }
  if (content.size() < header || BigEndian32(content, 0) != (kUnsignedBytes << 8 | dimensions)) {
    throw DataError(
        "{}: no idx file of unsigned bytes with {} dimensions (wrong file, or images and "
        "labels exchanged?)",
        path, dimensions);
  }
  Idx idx;
  size_t expected = header;
  size_t items = 1;
  for (uint32_t dimension = 0; dimension < dimensions; ++dimension) {
    idx.sizes.push_back(BigEndian32(content, 4 + 4 * size_t{dimension}));
    // The product of three 32-bit sizes overflows 64 bits only if the product is far greater than the size of any file.
    // `items` is then set to a number of bytes that no file has, so the check of the size below fails.
    if (__builtin_mul_overflow(items, static_cast<size_t>(idx.sizes.back()), &items))
      items = SIZE_MAX / 2;
  }
  expected += items;
  if (content.size() != expected) {
    throw DataError("{}: the file has {} bytes where its header says {}: {}", path, content.size(),
                    expected,
                    content.size() < expected ? "it is truncated" : "there is more behind the end");
  }
  if (items == 0) throw DataError("{}: the header says that there are no samples", path);
  idx.bytes.resize(items);
  std::memcpy(idx.bytes.data(), content.data() + header, items);
  return idx;
}

}  // namespace

std::shared_ptr<const Dataset> ReadMnist(const MnistOptions& options) {
  constexpr int64_t kDigits = 10;
  DataContents contents;
  Idx images = ReadIdx(options.images, 3, contents);
  SampleSpec spec{.shape = {1, images.sizes[1], images.sizes[2]}, .dtype = at::kByte};
  spec.classes = options.classes > 0 ? options.classes : kDigits;

  std::vector<int64_t> labels(images.sizes[0], Dataset::kNoLabel);
  if (!options.labels.empty()) {
    const Idx idx = ReadIdx(options.labels, 1, contents);
    if (idx.sizes[0] != images.sizes[0]) {
      throw DataError("{}: {} labels for the {} images of {}", options.labels, idx.sizes[0],
                      images.sizes[0], options.images);
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int64_t>(idx.bytes[i]);
      if (labels[i] >= spec.classes) {
        throw DataError("{}: record {}: label {} is out of range: data.classes is {}",
                        options.labels, i, labels[i], spec.classes);
      }
    }
  }
  return MakeInMemory(std::move(spec), std::move(images.bytes), BytesOf(labels),
                      std::move(contents));
}

}  // namespace lockstep
