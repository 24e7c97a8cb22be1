// Fuzzes the reader of safetensors files. Checks that the tensors of an accepted file together have as many bytes as
// the file has after its header.
//
// Half of the mutations change the header as JSON and set its length field to match, so that the code that runs after
// the JSON parser is reached, too.

#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files/safetensors.h"
#include "tests/fuzz/memory_file.h"

// libFuzzer defines LLVMFuzzerMutate(). In the test that only replays the corpus, LLVMFuzzerMutate() is not defined and
// not called.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLengthBytes = 8;
constexpr char kWhole[] =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]}})";

Json NumberLike(std::mt19937& random, const Json& old) {
  static const std::array<Json, 12> kNumbers{0,
                                             1,
                                             2,
                                             8,
                                             16,
                                             17,
                                             -1,
                                             int64_t{1} << 31,
                                             int64_t{1} << 62,
                                             std::numeric_limits<uint64_t>::max(),
                                             1e300,
                                             "8"};
  if (old.is_number_integer() && random() % 2 == 0)
    return old.get<int64_t>() + (random() % 2 == 0 ? 1 : -1);
  return kNumbers[random() % kNumbers.size()];
}

void Mutate(Json& header, std::mt19937& random) {
  if (!header.is_object() || header.empty()) header = Json::parse(kWhole);
  auto entry = header.begin();
  std::advance(entry, random() % header.size());
  const std::string name = entry.key();
  Json& tensor = entry.value();
  switch (random() % 8) {
    case 0:
      header.erase(name);
      return;
    case 1:  // two tensors with the same byte range
      header[name + "2"] = Json(tensor);
      return;
    case 2:
      header["__metadata__"] = Json{{"format", random() % 2 == 0 ? Json("pt") : Json(1)}};
      return;
    case 3: {
      static constexpr std::array<const char*, 8> kTypes{"F64", "F32", "F16",  "BF16",
                                                         "I64", "U8",  "BOOL", "X"};
      if (tensor.is_object()) tensor["dtype"] = kTypes[random() % kTypes.size()];
      return;
    }
    default:
      break;
  }
  if (!tensor.is_object()) return;
  Json& list = tensor[random() % 2 == 0 ? "shape" : "data_offsets"];
  if (!list.is_array() || list.empty()) {
    list = Json::array({0, 8});
  } else if (random() % 6 == 0) {
    list.push_back(1);
  } else if (random() % 6 == 0) {
    list.erase(list.size() - 1);
  } else {
    Json& number = list[random() % list.size()];
    number = NumberLike(random, number);
  }
}

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::mt19937 random(seed);
  if (random() % 2 == 0 && size > 0) return LLVMFuzzerMutate(data, size, most);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  uint64_t length = 0;
  if (size >= kLengthBytes) std::memcpy(&length, data, kLengthBytes);
  Json header;
  std::string rest(16, '\1');
  if (size >= kLengthBytes && length <= size - kLengthBytes) {
    header = Json::parse(bytes.substr(kLengthBytes, length), nullptr, /*allow_exceptions=*/false);
    rest = bytes.substr(kLengthBytes + length);
  }
  do {
    Mutate(header, random);
  } while (random() % 3 == 0);
  if (random() % 8 == 0) rest.resize(random() % 40);
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  length = text.size();
  if (kLengthBytes + text.size() + rest.size() > most) return size;
  std::memcpy(data, &length, kLengthBytes);
  text.copy(reinterpret_cast<char*>(data) + kLengthBytes, text.size());
  rest.copy(reinterpret_cast<char*>(data) + kLengthBytes + text.size(), rest.size());
  return kLengthBytes + text.size() + rest.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lockstep::MemoryFile file(data, size);
  try {
    const auto tensors = lockstep::ReadSafetensors(file.path(), lockstep::kGivenByUser);
    uint64_t length = 0;
    Require(size >= kLengthBytes);
    std::memcpy(&length, data, kLengthBytes);
    size_t covered = kLengthBytes + length;
    for (const auto& [name, tensor] : tensors) covered += tensor.nbytes();
    Require(covered == size);
  } catch (const lockstep::Error&) {  // the file was refused
  }
  return 0;
}
