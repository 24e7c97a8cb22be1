// Fuzzes the readers of .npy, MNIST, CIFAR-10 and token files: the input's first byte chooses the reader and its
// options, and the rest of the input is the file.

#include <vector>

#include "base/error.h"
#include "data/arrays/cifar10.h"
#include "data/arrays/mnist.h"
#include "data/arrays/npy.h"
#include "data/dataset/dataset.h"
#include "data/tokens/tokens.h"
#include "tests/fuzz/memory_file.h"

namespace lockstep {
namespace {

std::shared_ptr<const Dataset> Open(int choice, const std::string& path) {
  const auto task = static_cast<Task>(choice / 8 % 5);
  const int64_t classes = choice / 32 % 4;
  switch (choice % 8) {
    case 0:
      return MapNpy({.inputs = path, .task = task, .classes = classes});
    case 1:
      return MapNpy({.inputs = path,
                     .task = task,
                     .classes = classes,
                     .dtype = classes > 1 ? at::kLong : at::kByte});
    case 2:
      return MapNpy({.inputs = path, .targets = path, .task = task, .classes = classes});
    case 3:
      return ReadMnist({.images = path, .classes = classes});
    case 4:
      return ReadMnist({.images = path, .labels = path, .classes = classes});
    case 5:
      return ReadCifar10({.files = {path}});
    case 6:
      return MapTokens({.files = {path}, .length = 3});
    default:
      return MapTokens({.files = {path, path}, .length = 1 + classes, .classes = 100});
  }
}

void ReadAll(const Dataset& dataset) {
  constexpr int64_t kMostBytes = 1 << 24;
  if (dataset.spec().bytes() > kMostBytes || dataset.spec().target_bytes() > kMostBytes) return;
  std::vector<std::byte> input(dataset.spec().bytes()), target(dataset.spec().target_bytes());
  const int64_t size = dataset.size();
  for (const int64_t i : {int64_t{0}, size / 2, size - 1}) {
    dataset.Read(i, 0, input.data(), target.data());
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const lockstep::MemoryFile file(data + 1, size - 1);
  try {
    lockstep::ReadAll(*lockstep::Open(data[0], file.path()));
  } catch (const lockstep::Error&) {  // the file was refused
  }
  return 0;
}
