// EventFile: writes a file of TensorBoard's events, a TFRecord file.
//
// A record consists of the number of its bytes (uint64), the masked CRC-32C of these 8 bytes (uint32), the record's
// bytes, and the masked CRC-32C of the record's bytes (uint32). All integers are little-endian. The masked CRC is ((crc
// >> 15) | (crc << 17)) + 0xa282ead8.
//
// Invariants:
//   1. TensorBoard reads the files of one folder in the order of their names, events.out.tfevents.TIME.HOST.PID. The
//      TIME of a new file is greater than that of every file in the folder, even if the clock was set back.
//   2. If a write fails, the records are kept, up to kMostUnwritten bytes, and the next Flush() writes them. If a
//      record was written in part, the next Flush() overwrites it with the whole record.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/event_file_test.cc)
//   the folder or the file cannot be made, or the disk is full -> Error (kCheckpoint) from Flush(), and the records
//     wait -> EventFile.RecordsWaitForAFolder, EventFile.RecordsWaitForRoom
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/output_file.h"

namespace lockstep {

// Returns the CRC-32C (Castagnoli), as RFC 3720 defines it.
uint32_t Crc32c(std::string_view bytes);

class EventFile {
 public:
  static constexpr size_t kMostUnwritten = 64 << 20;

  // Sets the folder, but creates no file. The first Flush() that has a record creates `folder` if it does not exist,
  // and a new file in `folder`.
  explicit EventFile(std::string folder) : folder_(std::move(folder)) {}

  // Adds a record to those that the next Flush() writes. Drops the record if more than kMostUnwritten bytes would be
  // waiting.
  void Add(std::string_view record);

  // Writes the records that were added. Throws Error (kCheckpoint) if they cannot be written.
  void Flush();

 private:
  std::string NewPath() const;

  std::string folder_;
  std::optional<OutputFile> file_;
  int64_t bytes_ = 0;  // the number of bytes that are written to file_
  std::string unwritten_;
};

}  // namespace lockstep
