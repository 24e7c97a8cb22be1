// DataContents: fingerprints of what a data set was made of, by which a run that goes on notices that its data have
// changed.
//
// Promise: equal contents have equal fingerprints on all machines, wherever the files lie and whenever they were
// written. A data set has fingerprints of what it reads wholly when it is opened. What it reads only when a sample is
// needed, such as images, has a SampleRecord (data/dataset/sample_record.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct DataContents {
  // A file that was read wholly.
  struct File {
    std::string path;
    int64_t bytes = 0;
    uint64_t hash = 0;
  };
  // A part of all samples, in their order, such as "labels". Its hash may depend on options that say how the files are
  // read.
  struct Part {
    std::string name;
    uint64_t hash = 0;
  };
  // The name of the part whose hash does not depend on the order of the samples.
  static constexpr char kInAnyOrder[] = "samples in any order";
  // The name of the part for samples that are read only when they are needed: which there are, how large they are, and
  // what their classes are, as far as a list of the files says it.
  static constexpr char kList[] = "list of the samples";

  // Adds the file `path`, whose bytes are `content`.
  void AddFile(const std::string& path, std::string_view content);
  void AddPart(const std::string& name, std::span<const std::byte> content);
  // Adds the parts `inputs_name` and `targets_name` and the part kInAnyOrder of `samples` samples, whose inputs and
  // targets lie one after the other in `inputs` and `targets`.
  void AddSamples(const std::string& inputs_name, std::span<const std::byte> inputs,
                  const std::string& targets_name, std::span<const std::byte> targets,
                  int64_t samples);

  std::vector<File> files{};
  std::vector<Part> parts{};
};

}  // namespace lockstep
