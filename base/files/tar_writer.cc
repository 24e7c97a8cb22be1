#include "base/files/tar_writer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "base/files/tar_format.h"

namespace lockstep {
namespace {

using Header = std::array<char, kTarBlock>;

void Put(Header& header, TarField field, std::string_view text) {
  std::memcpy(header.data() + field.at, text.data(), text.size());
}

void PutNumber(Header& header, TarField field, int64_t number) {
  Put(header, field, fmt::format("{:0{}o}", number, field.length - 1));
}

// Returns the index of the slash at which `name` is split into the prefix field and the name field. Returns 0 if no
// split is needed, and npos if the name does not fit.
size_t CutOf(std::string_view name) {
  if (name.size() <= kTarName.length) return 0;
  // The first slash after which the rest fits in the name field gives the shortest prefix.
  const size_t slash = name.find('/', name.size() - kTarName.length - 1);
  const bool fits = slash != std::string_view::npos && slash > 0 && slash <= kTarPrefix.length &&
                    slash + 1 < name.size();
  return fits ? slash : std::string_view::npos;
}

// Returns a pax record such as "37 path=...\n". The number is the length of the whole record, including its own digits.
std::string PathRecord(std::string_view name) {
  const std::string text = fmt::format(" path={}\n", name);
  size_t bytes = text.size();
  while (bytes != text.size() + std::to_string(bytes).size()) {
    bytes = text.size() + std::to_string(bytes).size();
  }
  return std::to_string(bytes) + text;
}

}  // namespace

void AppendTarBlocks(std::string_view name, char type, std::string_view content,
                     std::string& archive) {
  const size_t cut = CutOf(name);
  Header header{};
  if (cut == 0) {
    Put(header, kTarName, name);
  } else if (cut == std::string_view::npos) {
    Put(header, kTarName, name.substr(0, kTarName.length));  // a pax record has the whole name
  } else {
    Put(header, kTarPrefix, name.substr(0, cut));
    Put(header, kTarName, name.substr(cut + 1));
  }
  PutNumber(header, kTarMode, 0644);
  PutNumber(header, kTarUser, 0);
  PutNumber(header, kTarGroup, 0);
  PutNumber(header, kTarSize, static_cast<int64_t>(content.size()));
  PutNumber(header, kTarTime, 0);
  Put(header, kTarType, std::string_view(&type, 1));
  Put(header, kTarMagic, std::string_view("ustar", kTarMagic.length));
  Put(header, kTarVersion, "00");
  Put(header, kTarChecksum, "        ");
  int64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  Put(header, kTarChecksum, std::string_view(fmt::format("{:06o}", sum) + std::string("\0 ", 2)));
  archive.append(header.data(), header.size());
  archive += content;
  const auto bytes = static_cast<int64_t>(content.size());
  archive.append(WholeTarBlocks(bytes) - bytes, '\0');
}

int64_t TarMemberBytes(const std::string& name, int64_t bytes) {
  int64_t all = kTarBlock + WholeTarBlocks(bytes);
  if (CutOf(name) == std::string::npos) {
    all += kTarBlock + WholeTarBlocks(static_cast<int64_t>(PathRecord(name).size()));
  }
  return all;
}

void AppendTarMember(const std::string& name, std::span<const std::byte> content,
                     std::string& archive) {
  if (CutOf(name) == std::string::npos) AppendTarBlocks("pax", 'x', PathRecord(name), archive);
  AppendTarBlocks(name, '0', {reinterpret_cast<const char*>(content.data()), content.size()},
                  archive);
}

void AppendTarEnd(std::string& archive) { archive.append(2 * kTarBlock, '\0'); }

}  // namespace lockstep
