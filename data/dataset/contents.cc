#include "data/dataset/contents.h"

#include "base/files/xxh3.h"
#include "base/mix.h"

namespace lockstep {
namespace {

uint64_t HashOf(std::span<const std::byte> bytes) {
  return Xxh3Of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

void DataContents::AddFile(const std::string& path, std::string_view content) {
  files.push_back(
      {.path = path, .bytes = static_cast<int64_t>(content.size()), .hash = Xxh3Of(content)});
}

void DataContents::AddPart(const std::string& name, std::span<const std::byte> content) {
  parts.push_back({.name = name, .hash = HashOf(content)});
}

void DataContents::AddSamples(const std::string& inputs_name, std::span<const std::byte> inputs,
                              const std::string& targets_name, std::span<const std::byte> targets,
                              int64_t samples) {
  AddPart(inputs_name, inputs);
  AddPart(targets_name, targets);
  if (samples == 0) return;
  const size_t input_bytes = inputs.size() / samples;
  const size_t target_bytes = targets.size() / samples;
  uint64_t sum = 0;
  for (int64_t i = 0; i < samples; ++i) {
    // Input and target are mixed before the sum, so that it notices two samples that have exchanged their targets.
    const uint64_t input = HashOf(inputs.subspan(i * input_bytes, input_bytes));
    const uint64_t target = HashOf(targets.subspan(i * target_bytes, target_bytes));
    sum += Mix(input ^ Mix(target));
  }
  parts.push_back({.name = kInAnyOrder, .hash = sum});
}

}  // namespace lockstep
