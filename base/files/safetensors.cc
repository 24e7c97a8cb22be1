#include "base/files/safetensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/open_file.h"
#include "base/files/xxh3.h"
#include "base/in_threads.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr char kChecksum[] = "lockstep_xxh3";

constexpr std::pair<at::ScalarType, const char*> kDtypes[] = {
    {at::kBool, "BOOL"}, {at::kByte, "U8"},    {at::kChar, "I8"},  {at::kShort, "I16"},
    {at::kInt, "I32"},   {at::kLong, "I64"},   {at::kHalf, "F16"}, {at::kBFloat16, "BF16"},
    {at::kFloat, "F32"}, {at::kDouble, "F64"},
};

// The dtypes of the format that are not read (safetensors 0.8.0, safetensors/src/tensor.rs, enum Dtype).
constexpr std::string_view kOtherDtypes[] = {"F4",      "F6_E2M3", "F6_E3M2",     "F8_E5M2",
                                             "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                             "U16",     "U32",     "U64",         "C64"};

std::string NameOf(at::ScalarType dtype) {
  for (const auto& [known, name] : kDtypes) {
    if (known == dtype) return name;
  }
  throw BugError("safetensors knows no {}", c10::toString(dtype));
}

std::optional<at::ScalarType> DtypeOf(const std::string& name) {
  for (const auto& [dtype, known] : kDtypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

// Throws Error (kCheckpoint) if the tensor `name` of the file `path` has a dtype that the format knows and that is not
// read. `json` is the tensor's entry in the header.
void RequireReadDtype(const std::string& path, const std::string& name, const Json& json) {
  const auto dtype = json.at("dtype").get<std::string>();
  if (std::ranges::find(kOtherDtypes, dtype) == std::end(kOtherDtypes)) return;
  std::vector<std::string_view> read;
  for (const auto& [known, known_name] : kDtypes) read.emplace_back(known_name);
  throw CheckpointError(
      "{}: {} has the dtype {}, which is not read: convert it to one of {} (in PyTorch, "
      "tensor.to() does)",
      path, name, dtype, fmt::join(read, ", "));
}

// One tensor's entry in the header. ParseEntry() checks it, also against the number of bytes after the header, and
// throws std::exception with the reason if it is wrong.
struct Entry {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin;
  uint64_t end;
};

// Json::get() would cut off what follows the point of 8.5, and 1e300 fits into no integer. Throws std::exception.
uint64_t WholeNumber(const Json& json) {
  if (!json.is_number_unsigned()) throw std::runtime_error(json.dump() + " is no whole number");
  return json.get<uint64_t>();
}

Entry ParseEntry(const Json& json, uint64_t data_bytes) {
  const auto dtype_name = json.at("dtype").get<std::string>();
  const std::optional<at::ScalarType> dtype = DtypeOf(dtype_name);
  if (!dtype) throw std::runtime_error("unknown dtype " + dtype_name);
  std::vector<int64_t> shape;
  for (const Json& size : json.at("shape").get_ref<const Json::array_t&>()) {
    shape.push_back(static_cast<int64_t>(WholeNumber(size)));
  }
  const Json& offsets = json.at("data_offsets");
  if (offsets.size() != 2) throw std::runtime_error("data_offsets are not two");
  const uint64_t begin = WholeNumber(offsets[0]);
  const uint64_t end = WholeNumber(offsets[1]);
  uint64_t bytes = c10::elementSize(*dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      throw std::runtime_error("impossible shape");
    }
  }
  if (begin > end || end > data_bytes) throw std::runtime_error("data_offsets outside the file");
  if (end - begin != bytes) throw std::runtime_error("data_offsets do not fit the shape");
  return {*dtype, shape, begin, end};
}

std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  const size_t shown = std::min(names.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Returns the checksum of `tensors`, which must be contiguous and on the CPU. The checksum does not depend on the order
// of the tensors in a file.
std::string ChecksumOf(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<std::pair<std::string, at::Tensor>> listed(tensors.begin(), tensors.end());
  std::vector<uint64_t> hashes(listed.size());
  InThreads(ReadingThreads(), std::ssize(listed), [&](int64_t i) {
    Xxh3 hash;
    hash.Add(BytesOf(listed[i].second));
    hashes[i] = hash.value();
  });
  std::string text;
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto& [name, tensor] = listed[i];
    text += fmt::format("{} {} [{}] {:016x}\n", name, NameOf(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ","), hashes[i]);
  }
  return fmt::format("{:016x}", Xxh3Of(text));
}

// Returns contiguous copies of the tensors on the CPU, and adds their checksum to `metadata`. The metadata is part of
// the file's header, so the checksum must be known before the tensors' bytes are written.
std::vector<NamedTensor> OnHost(const std::vector<NamedTensor>& tensors,
                                std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> on_host;
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) {
    on_host.push_back({name, tensor.detach().to(at::kCPU).contiguous()});
    by_name.emplace(name, on_host.back().tensor);
  }
  metadata[kChecksum] = ChecksumOf(by_name);
  return on_host;
}

void AppendFromHost(const AppendBytes& append, const std::vector<NamedTensor>& on_host,
                    const std::map<std::string, std::string>& metadata) {
  AppendSafetensors(
      append, on_host, metadata,
      [](const at::Tensor& tensor, const AppendBytes& append) { append(BytesOf(tensor)); });
}

// Fills `to` from byte `offset` of the file. Returns false if the file ends before `to` is full, or cannot be read.
bool ReadAll(const FileDescriptor& file, uint64_t offset, std::span<std::byte> to) {
  return ReadAt(file, static_cast<int64_t>(offset), to) == to.size();
}

}  // namespace

void AppendSafetensors(const AppendBytes& append, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const AppendTensor& append_tensor) {
  Json header;
  header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", NameOf(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  std::string text = header.dump();
  // Pads the header with spaces, so that the first tensor begins at a multiple of 8 bytes, as programs that map the
  // file into memory need it.
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  append(std::as_bytes(std::span(&length, 1)));
  append(std::as_bytes(std::span(text)));
  for (const auto& [name, tensor] : tensors) append_tensor(tensor, append);
}

void WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata) {
  const std::vector<NamedTensor> on_host = OnHost(tensors, metadata);
  WriteFileAtomically(
      path, [&](const AppendBytes& append) { AppendFromHost(append, on_host, metadata); });
}

void WriteSafetensors(OutputTarget& target, const std::vector<NamedTensor>& tensors,
                      std::map<std::string, std::string> metadata) {
  const std::vector<NamedTensor> on_host = OnHost(tensors, metadata);
  target.Write([&](const AppendBytes& append) { AppendFromHost(append, on_host, metadata); });
}

SafetensorsFile::SafetensorsFile(std::string path, int own_names) : path_(std::move(path)) {
  std::string why;
  file_ = OpenPlainFile(path_, own_names, O_RDONLY, why);
  if (file_.get() < 0) throw CheckpointError("{}: cannot be opened: {}", path_, why);
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) {
    throw CheckpointError("{}: cannot be read: {}", path_, std::strerror(errno));
  }
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  // Hugging Face's own reader has the same limit for the header's size.
  constexpr uint64_t kMostHeader = 100'000'000;
  uint64_t length = 0;
  if (!ReadAll(file_, 0, std::as_writable_bytes(std::span(&length, 1))) ||
      length > file_bytes - sizeof(length)) {
    throw CheckpointError("{}: no safetensors file, or it is truncated ({} bytes)", path_,
                          file_bytes);
  }
  if (length > kMostHeader) {
    throw CheckpointError("{}: no safetensors file: a header of {} bytes", path_, length);
  }
  std::string text(length, '\0');
  if (!ReadAll(file_, sizeof(length), std::as_writable_bytes(std::span(text)))) {
    throw CheckpointError("{}: cannot be read", path_);
  }
  const uint64_t data_begin = sizeof(length) + length;

  std::string name;
  try {
    const Json header = Json::parse(text);
    if (!header.is_object()) throw std::runtime_error("not a JSON object");
    for (const auto& [key, json] : header.items()) {
      name = key;
      if (name == "__metadata__") {
        // The library reads null as no metadata.
        if (!json.is_null()) metadata_ = json.get<std::map<std::string, std::string>>();
        continue;
      }
      RequireReadDtype(path_, name, json);
      const Entry entry = ParseEntry(json, file_bytes - data_begin);
      places_[name] = {entry.dtype, entry.shape, data_begin + entry.begin, entry.end - entry.begin};
    }
    name.clear();
    RequireFilled(data_begin, file_bytes);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError("{}: damaged safetensors header{}: {}", path_,
                          name.empty() ? "" : " at \"" + name + "\"", FirstLine(error.what()));
  }
}

// Throws std::runtime_error unless the tensors fill the bytes from `begin` to `end` without gaps and overlaps, as the
// format demands. A file with gaps could contain hidden bytes, and tensors that overlap would share bytes.
void SafetensorsFile::RequireFilled(uint64_t begin, uint64_t end) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, place] : places_) ranges.emplace_back(place.begin, place.bytes);
  std::ranges::sort(ranges);
  for (const auto& [from, bytes] : ranges) {
    if (from < begin) throw std::runtime_error("tensors overlap");
    if (from > begin) throw std::runtime_error("bytes between the tensors belong to none");
    begin += bytes;
  }
  if (begin != end) {
    throw std::runtime_error(fmt::format("{} bytes follow the last tensor", end - begin));
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

at::Tensor SafetensorsFile::Read(const std::string& name) const {
  const Place& place = places_.at(name);
  at::Tensor tensor;
  try {
    tensor = at::empty(place.shape, at::TensorOptions(place.dtype));
  } catch (const std::exception& error) {
    throw CheckpointError("{}: damaged safetensors header at \"{}\": {}", path_, name,
                          FirstLine(error.what()));
  }
  if (!ReadAll(file_, place.begin,
               {static_cast<std::byte*>(tensor.mutable_data_ptr()), place.bytes})) {
    throw CheckpointError("{}: {} cannot be read", path_, name);
  }
  return tensor;
}

std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path, int own_names) {
  const SafetensorsFile file(path, own_names);
  const std::vector<std::string> names = file.names();
  std::vector<at::Tensor> read(names.size());
  InThreads(ReadingThreads(), std::ssize(names), [&](int64_t i) { read[i] = file.Read(names[i]); });
  std::map<std::string, at::Tensor> tensors;
  for (size_t i = 0; i < names.size(); ++i) tensors.emplace(names[i], read[i]);
  const auto checksum = file.metadata().find(kChecksum);
  if (checksum != file.metadata().end() && checksum->second != ChecksumOf(tensors)) {
    throw CheckpointError(
        "{}: is damaged: its tensors are not those that its checksum is of (metadata {}; a program "
        "that changes them should leave that out)",
        path, kChecksum);
  }
  return tensors;
}

void CopyByName(const std::string& path, const std::map<std::string, at::Tensor>& found,
                const std::vector<NamedTensor>& tensors,
                const std::function<std::string(const std::string&)>& shape_hint) {
  std::vector<std::string> missing;
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors) {
    known.insert(name);
    const auto entry = found.find(name);
    if (entry == found.end()) {
      missing.push_back(name);
    } else if (entry->second.sizes() != tensor.sizes()) {
      throw CheckpointError("{}: {} has shape {} where the model has {}{}", path, name,
                            fmt::format("[{}]", fmt::join(entry->second.sizes(), ", ")),
                            fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")),
                            shape_hint ? shape_hint(name) : "");
    }
  }
  std::vector<std::string> extra;
  for (const auto& [name, tensor] : found) {
    if (!known.contains(name)) extra.push_back(name);
  }
  std::vector<std::string> complaints;
  if (!missing.empty()) {
    complaints.push_back(fmt::format("not in the file: {} ({} of the model's {} tensors)",
                                     FirstOf(missing), missing.size(), tensors.size()));
  }
  if (!extra.empty()) {
    complaints.push_back(fmt::format("not in the model: {} ({} of the file's {} tensors)",
                                     FirstOf(extra), extra.size(), found.size()));
  }
  if (!complaints.empty()) throw CheckpointError("{}: {}", path, fmt::join(complaints, "; "));
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) tensor.detach().copy_(found.at(name));
}

}  // namespace lockstep
