#include "observe/sinks/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/clock.h"
#include "base/files/atomic_file.h"
#include "base/host_name.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> Crc32cTable() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

template <typename Integer>
void AppendInteger(Integer value, std::string& bytes) {
  static_assert(std::endian::native == std::endian::little);
  char raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  bytes.append(raw, sizeof(value));
}

uint32_t MaskedCrc(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8; }

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = Crc32cTable();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

void EventFile::Add(std::string_view record) {
  if (unwritten_.size() + record.size() > kMostUnwritten) return;
  std::string length;
  AppendInteger<uint64_t>(record.size(), length);
  unwritten_ += length;
  AppendInteger(MaskedCrc(length), unwritten_);
  unwritten_ += record;
  AppendInteger(MaskedCrc(record), unwritten_);
}

void EventFile::Flush() {
  if (unwritten_.empty()) return;
  if (!file_) {
    MakeFolder(folder_, kSaving);
    file_.emplace(NewPath(), kSaving, kInFlightFolder);
  }
  file_->Write(std::as_bytes(std::span(unwritten_)), bytes_);
  bytes_ += static_cast<int64_t>(unwritten_.size());
  unwritten_.clear();
}

std::string EventFile::NewPath() const {
  auto time = static_cast<int64_t>(UnixSeconds());
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    int64_t other = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    time = std::max(time, other + 1);
  }
  return fmt::format("{}/{}{:010}.{}.{}", folder_, kPrefix, time, HostName(), getpid());
}

}  // namespace lockstep
