// Fuzzes the reader of checkpoint manifests. The input is a serialised manifest without checksum. The target adds a
// valid checksum, so that the reader does not refuse the manifest before it reads the content. Checks that each file of
// an accepted manifest is named once, has a name without folders, and exists with the size that the manifest gives.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "base/files/xxh3.h"
#include "ckpt/checkpoint.h"
#include "ckpt/manifest.pb.h"
#include "ckpt/saver.h"

// libFuzzer defines LLVMFuzzerMutate(). In the test that only replays the corpus, LLVMFuzzerMutate() is not defined and
// not called.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A temporary folder with a checkpoint of step 7, whose two files have ten bytes each.
class Folder {
 public:
  Folder() : scratch_(fs::temp_directory_path().string()) {
    if (scratch_.path().empty()) std::abort();
    fs::create_directories(checkpoint().path);
    for (const char* file : {"model.safetensors", "state-0.safetensors"}) Write(file, "0123456789");
  }

  Checkpoint checkpoint() const { return CheckpointOf(scratch_.path(), 7); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(checkpoint().path + "/" + name, std::ios::binary) << bytes;
  }

 private:
  ScratchFolder scratch_;
};

int64_t Interesting(std::mt19937& random) {
  static constexpr std::array<int64_t, 12> kNumbers{0,
                                                    1,
                                                    -1,
                                                    2,
                                                    7,
                                                    10,
                                                    255,
                                                    1 << 20,
                                                    std::numeric_limits<int32_t>::max(),
                                                    std::numeric_limits<int32_t>::min(),
                                                    std::numeric_limits<int64_t>::max(),
                                                    std::numeric_limits<int64_t>::min()};
  return kNumbers[random() % kNumbers.size()];
}

std::string Text(std::string text, std::mt19937& random) {
  static constexpr std::array<const char*, 10> kNames{"model.safetensors",
                                                      "state-0.safetensors",
                                                      "state-1.safetensors",
                                                      "",
                                                      ".",
                                                      "..",
                                                      "/etc/passwd",
                                                      "../model.safetensors",
                                                      "a/b",
                                                      "manifest.pb"};
  if (random() % 2 == 0) return kNames[random() % kNames.size()];
  const size_t size = text.size();
  text.resize(size + 16);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  return text;
}

// Changes a random field of `message` or of a message that is nested in it.
void Mutate(Message& message, std::mt19937& random) {
  const Reflection& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  const FieldDescriptor* field = type.field(static_cast<int>(random() % type.field_count()));
  if (random() % 8 == 0) return reflection.ClearField(&message, field);
  if (field->is_repeated()) {
    const int size = reflection.FieldSize(message, field);
    if (size > 1 && random() % 6 == 0) {
      return reflection.SwapElements(&message, field, 0, size - 1);
    }
    if (size > 0 && random() % 6 == 0) return reflection.RemoveLast(&message, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      return reflection.AddString(&message, field, Text("", random));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    if (size == 0 || random() % 4 == 0) {
      Message* added = reflection.AddMessage(&message, field);
      // The new element becomes a copy of the first element.
      if (size > 0) added->CopyFrom(reflection.GetRepeatedMessage(message, field, 0));
      return;
    }
    const int element = static_cast<int>(random() % size);
    return Mutate(*reflection.MutableRepeatedMessage(&message, field, element), random);
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, field, static_cast<int32_t>(Interesting(random)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, field, Interesting(random));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, field, static_cast<uint64_t>(Interesting(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, field, static_cast<double>(Interesting(random)));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, field,
                                  Text(reflection.GetString(message, field), random));
    default:
      return;
  }
}

checkpoint::Manifest Whole() {
  checkpoint::Manifest manifest;
  manifest.set_format(1);
  manifest.set_step(7);
  manifest.set_ranks(1);
  for (const char* name : {"model.safetensors", "state-0.safetensors"}) {
    checkpoint::File& file = *manifest.add_file();
    file.set_name(name);
    file.set_bytes(10);
    file.set_xxh3(Xxh3Of("0123456789"));
  }
  return manifest;
}

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace
}  // namespace lockstep

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::mt19937 random(seed);
  lockstep::checkpoint::Manifest manifest;
  if (size == 0 || !manifest.ParseFromArray(data, static_cast<int>(size))) {
    manifest = lockstep::Whole();
  }
  do {
    lockstep::Mutate(manifest, random);
  } while (random() % 3 == 0);
  const std::string bytes = manifest.SerializeAsString();
  if (bytes.size() > most) return size;
  bytes.copy(reinterpret_cast<char*>(data), bytes.size());
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lockstep::Require;
  static const lockstep::Folder folder;
  lockstep::checkpoint::SealedManifest sealed;
  sealed.set_manifest(data, size);
  sealed.set_xxh3(lockstep::Xxh3Of(sealed.manifest()));
  folder.Write("manifest.pb", sealed.SerializeAsString());
  try {
    const auto manifest = lockstep::ReadManifest(folder.checkpoint());
    lockstep::RequireFiles(folder.checkpoint(), manifest);
    std::set<std::string> names;
    for (const auto& file : manifest.file()) {
      Require(names.insert(file.name()).second);
      Require(!file.name().empty() && file.name().find('/') == std::string::npos);
      Require(file.name() != "." && file.name() != ".." && file.bytes() >= 0);
    }
    Require(manifest.ranks() > 0 && manifest.step() == 7);
    lockstep::VerifyCheckpoint(folder.checkpoint(), manifest);
    for (const auto& file : manifest.file()) Require(file.bytes() == 10);
  } catch (const lockstep::Error& error) {
    Require(error.status() == lockstep::ExitStatus::kCheckpoint);
  }
  return 0;
}
