#include "prepare/tar_writer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 512;

// ustar's fields: offset and bytes.
struct Field {
  size_t offset;
  size_t bytes;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12},
    kTime{136, 12}, kChecksum{148, 8}, kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};

using Header = std::array<char, kBlock>;

void Put(Header& header, Field field, std::string_view text) {
  std::memcpy(header.data() + field.offset, text.data(), text.size());
}

void PutNumber(Header& header, Field field, int64_t number) {
  Put(header, field, fmt::format("{:0{}o}", number, field.bytes - 1));
}

int64_t Padding(int64_t bytes) { return (kBlock - bytes % kBlock) % kBlock; }

// Where `name` is cut into prefix and name; 0: it need not be; npos: it cannot be.
size_t CutOf(std::string_view name) {
  if (name.size() <= kName.bytes) return 0;
  // The first slash that leaves a name short enough leaves the shortest prefix.
  const size_t slash = name.find('/', name.size() - kName.bytes - 1);
  const bool fits = slash != std::string_view::npos && slash > 0 && slash <= kPrefix.bytes &&
                    slash + 1 < name.size();
  return fits ? slash : std::string_view::npos;
}

// "37 path=...\n", the number being the record's length with its own digits.
std::string PathRecord(std::string_view name) {
  const std::string text = fmt::format(" path={}\n", name);
  size_t bytes = text.size();
  while (bytes != text.size() + std::to_string(bytes).size()) {
    bytes = text.size() + std::to_string(bytes).size();
  }
  return std::to_string(bytes) + text;
}

void AppendBlocks(std::string_view name, char type, std::string_view content,
                  std::string& archive) {
  const size_t cut = CutOf(name);
  Header header{};
  if (cut == 0) {
    Put(header, kName, name);
  } else if (cut == std::string_view::npos) {
    Put(header, kName, name.substr(0, kName.bytes));  // the record before it has the whole
  } else {
    Put(header, kPrefix, name.substr(0, cut));
    Put(header, kName, name.substr(cut + 1));
  }
  PutNumber(header, kMode, 0644);
  PutNumber(header, kUser, 0);
  PutNumber(header, kGroup, 0);
  PutNumber(header, kSize, static_cast<int64_t>(content.size()));
  PutNumber(header, kTime, 0);
  Put(header, kType, std::string_view(&type, 1));
  Put(header, kMagic, std::string_view("ustar\00000", kMagic.bytes));
  Put(header, kChecksum, "        ");
  int64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  Put(header, kChecksum, std::string_view(fmt::format("{:06o}", sum) + std::string("\0 ", 2)));
  archive.append(header.data(), header.size());
  archive += content;
  archive.append(Padding(static_cast<int64_t>(content.size())), '\0');
}

}  // namespace

int64_t TarMemberBytes(const std::string& name, int64_t bytes) {
  int64_t all = kBlock + bytes + Padding(bytes);
  if (CutOf(name) == std::string::npos) {
    const auto record = static_cast<int64_t>(PathRecord(name).size());
    all += kBlock + record + Padding(record);
  }
  return all;
}

void AppendTarMember(const std::string& name, std::span<const std::byte> content,
                     std::string& archive) {
  if (CutOf(name) == std::string::npos) AppendBlocks("pax", 'x', PathRecord(name), archive);
  AppendBlocks(name, '0', {reinterpret_cast<const char*>(content.data()), content.size()}, archive);
}

void AppendTarEnd(std::string& archive) { archive.append(2 * kBlock, '\0'); }

}  // namespace lockstep
