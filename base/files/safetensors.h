// Reads and writes tensors in Hugging Face's safetensors format, which Python's `safetensors` can open.
//
// The format (https://github.com/huggingface/safetensors, 'Format'): 8 bytes, little-endian, with the header's length;
// then the header, which is JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__":
// {"key": "value"}}; then the tensors' bytes, without gaps. The offsets count from the end of the header.
//
// Promise: WriteSafetensors() writes a file whole or not at all (base/files/atomic_file.h). Reading a file gives
// tensors or an error, also if the file is damaged.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/safetensors_test.cc)
//   a file that is missing, truncated or no safetensors file, tensors that overlap or leave gaps, bytes after the last
//     -> Error (kCheckpoint) with path and reason -> Safetensors.RefusesDamagedFiles, .RefusesEveryTruncation,
//     .RefusesWhatDoesNotFillTheFile
//   a tensor of a dtype that the format knows and that is not read (U16, F8_E4M3, ...)
//     -> Error (kCheckpoint) with path, name and dtype -> Safetensors.NamesDtypesThatAreNotRead
//   bytes that changed since they were written -> likewise -> Safetensors.NoticesAFlippedBit
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

// These two functions write tensors of any device in the given order: the first to a file of a run, the second to a
// target that the user gave. The metadata "lockstep_xxh3" of the file is a checksum (XXH3) of the tensors' names,
// dtypes, shapes and bytes. The functions throw Error (kCheckpoint).
void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata);
void WriteSafetensors(OutputTarget& target, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata);

// The type of a function that appends the bytes of a tensor, in contiguous order, to a file.
using AppendTensor = std::function<void(const at::Tensor&, const AppendBytes&)>;

// Appends the content of a safetensors file. Calls append_tensor for the bytes of each tensor. Throws any exception of
// `append` and `append_tensor`.
void AppendSafetensors(const AppendBytes& append, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const AppendTensor& append_tensor);

// A safetensors file that is open for reading.
class SafetensorsFile {
 public:
  // Opens the file and reads its header. `own_names`: see base/files/open_file.h. Throws Error (kCheckpoint).
  SafetensorsFile(std::string path, int own_names);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  bool Has(const std::string& name) const { return places_.contains(name); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Reads the tensor `name`, which must be one of names(), to the CPU. Several threads may call Read() at the same
  // time. Throws Error (kCheckpoint).
  at::Tensor Read(const std::string& name) const;

 private:
  struct Place {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin;  // the offset in the file
    uint64_t bytes;
  };

  void RequireFilled(uint64_t begin, uint64_t end) const;

  std::string path_;
  FileDescriptor file_;
  std::map<std::string, Place> places_;
  std::map<std::string, std::string> metadata_;
};

// Reads all tensors of a file to the CPU. Throws Error (kCheckpoint), also if the file has the metadata "lockstep_xxh3"
// and this checksum does not fit the tensors.
std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path, int own_names);

// Copies `found`, the tensors of a file, into `tensors`, and converts their dtypes. `found` must have exactly
// the names in `tensors`, with the same shapes. If it does not, throws Error (kCheckpoint) that names `path`, before
// anything is copied. If a shape differs, the error message ends with shape_hint(name).
void CopyByName(const std::string& path, const std::map<std::string, at::Tensor>& found,
                const std::vector<NamedTensor>& tensors,
                const std::function<std::string(const std::string& name)>& shape_hint = {});

}  // namespace lockstep
