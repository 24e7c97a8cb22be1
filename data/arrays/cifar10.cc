// CIFAR-10's binary version (https://www.cs.toronto.edu/~kriz/cifar.html) consists of records. A record has one label
// byte and 3,072 bytes of pixels: a red, a green and a blue plane of 32 x 32 each.

#include "data/arrays/cifar10.h"

#include <cstring>

#include "base/error.h"
#include "data/dataset/in_memory.h"

namespace lockstep {

std::shared_ptr<const Dataset> ReadCifar10(const Cifar10Options& options) {
  SampleSpec spec{.shape = {3, 32, 32}, .dtype = at::kByte, .classes = 10};
  const size_t pixels = spec.bytes();
  std::vector<std::byte> inputs;
  std::vector<int64_t> labels;
  DataContents contents;
  for (const std::string& path : options.files) {
    const std::string content = ReadWholeFile(path);
    contents.AddFile(path, content);
    if (content.size() % kCifar10RecordBytes != 0) {
      throw DataError(
          "{}: {} bytes are no whole number of CIFAR-10 records of {}: truncated, or not the "
          "binary version",
          path, content.size(), kCifar10RecordBytes);
    }
    for (size_t offset = 0; offset < content.size(); offset += kCifar10RecordBytes) {
      labels.push_back(static_cast<unsigned char>(content[offset]));
      if (labels.back() >= spec.classes) {
        throw DataError("{}: record {}: label {} is out of range: CIFAR-10 has 10 classes", path,
                        offset / kCifar10RecordBytes, labels.back());
      }
      inputs.resize(inputs.size() + pixels);
      std::memcpy(inputs.data() + inputs.size() - pixels, content.data() + offset + 1, pixels);
    }
  }
  return MakeInMemory(std::move(spec), std::move(inputs), BytesOf(labels), std::move(contents));
}

}  // namespace lockstep
