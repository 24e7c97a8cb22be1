#include "data/dataset/in_memory.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/readable_file.h"

namespace lockstep {
namespace {

class InMemory : public Dataset {
 public:
  InMemory(SampleSpec spec, std::vector<std::byte> inputs, std::vector<std::byte> targets,
           DataContents files)
      : spec_(std::move(spec)),
        bytes_(spec_.bytes()),
        target_bytes_(spec_.target_bytes()),
        inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        files_(std::move(files)) {}

  int64_t size() const override { return static_cast<int64_t>(targets_.size()) / target_bytes_; }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    std::memcpy(input, inputs_.data() + index * bytes_, bytes_);
    std::memcpy(target, targets_.data() + index * target_bytes_, target_bytes_);
  }

  DataContents Contents() const override {
    DataContents contents = files_;
    contents.AddSamples("pixels", inputs_, "labels", targets_, size());
    return contents;
  }

 private:
  SampleSpec spec_;
  int64_t bytes_;
  int64_t target_bytes_;
  std::vector<std::byte> inputs_;
  std::vector<std::byte> targets_;
  DataContents files_;
};

}  // namespace

std::string ReadWholeFile(const std::string& path) {
  const ReadableFile file(path);
  if (file.bytes() == 0) throw DataError("{}: the file is empty", path);
  std::string bytes(file.bytes(), '\0');
  if (file.ReadAt(0, std::as_writable_bytes(std::span(bytes))) < bytes.size()) {
    throw DataError("{}: became shorter while it was read", path);
  }
  return bytes;
}

std::shared_ptr<const Dataset> MakeInMemory(SampleSpec spec, std::vector<std::byte> inputs,
                                            std::vector<std::byte> targets, DataContents files) {
  return std::make_shared<InMemory>(std::move(spec), std::move(inputs), std::move(targets),
                                    std::move(files));
}

}  // namespace lockstep
