// Reads and writes tensors in Hugging Face's safetensors format, which Python's `safetensors` can open.
//
// The format (https://github.com/huggingface/safetensors, 'Format'): 8 bytes, little-endian, with the header's length;
// the header, which is JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {"key":
// "value"}}; then the tensors' bytes, without gaps. The offsets count from the end of the header.
//
// Promise: WriteSafetensors() writes a file whole or not at all (base/files/atomic_file.h). Reading a file gives
// tensors or an error, also if the file is damaged.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/safetensors_test.cc)
//   a file that is missing, truncated or no safetensors, tensors that overlap or leave gaps, bytes behind the last
//     -> Error (kCheckpoint) with path and reason -> Safetensors.RefusesDamagedFiles, .RefusesEveryTruncation,
//     .RefusesWhatDoesNotFillTheFile
//   bytes that changed since we wrote them -> likewise -> Safetensors.NoticesAFlippedBit
//   names or shapes that are not the model's -> Error (kCheckpoint) naming them
//     -> Safetensors.NamesWhatDoesNotFit
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"
#include "base/files/file_descriptor.h"
#include "base/files/output_target.h"
#include "base/tensor/named_tensor.h"

namespace lockstep {

// Writes tensors of any device, in the order given, and with the metadata a checksum of names, dtypes, shapes and bytes
// (XXH3), "lockstep_xxh3", to a file of a run's own, or to where a user wants them. Throws Error (kCheckpoint).
void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata);
void WriteSafetensors(OutputTarget& target, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata);

// Appends a tensor's bytes, contiguous.
using AppendTensor = std::function<void(const at::Tensor&, const AppendBytes&)>;

// Appends what such a file holds, the tensors' bytes by append_tensor. Throws whatever the two throw.
void AppendSafetensors(const AppendBytes& append, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const AppendTensor& append_tensor);

// Open for reading.
class SafetensorsFile {
 public:
  // `own_names`: base/files/open_file.h. Throws Error (kCheckpoint).
  SafetensorsFile(std::string path, int own_names);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // One of names(), on the CPU. From any thread. Throws Error (kCheckpoint).
  at::Tensor Read(const std::string& name) const;

 private:
  struct Place {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin;  // in the file
    uint64_t bytes;
  };

  void RequireFilled(uint64_t begin, uint64_t end) const;

  std::string path_;
  FileDescriptor file_;
  std::map<std::string, Place> places_;
  std::map<std::string, std::string> metadata_;
};

// All of a file's tensors on the CPU. Throws Error (kCheckpoint), also where the file has a checksum of ours that is
// not theirs.
std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path, int own_names);

// Copies `found`, a file's tensors, into `tensors`, converting dtypes. Every name must be there
// with the same shape, and no other. Throws Error (kCheckpoint), which names `path`, before
// anything is copied; where a shape differs its line ends with shape_hint(name).
void CopyByName(const std::string& path, const std::map<std::string, at::Tensor>& found,
                const std::vector<NamedTensor>& tensors,
                const std::function<std::string(const std::string& name)>& shape_hint = {});

}  // namespace lockstep
