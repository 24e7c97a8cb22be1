// EventFile: writes a file of TensorBoard's events, a TFRecord file.
//
// A record is: the length of its bytes (uint64), the masked CRC32C of these 8 bytes (uint32), the bytes, the masked
// CRC32C of the bytes (uint32), all little-endian. A mask is ((crc >> 15) | (crc << 17)) + 0xa282ead8.
//
// Invariants:
//   1. Files of one folder are read in the order of their names, events.out.tfevents.TIME.HOST.PID. A new file's TIME is
//      greater than that of every file that is there, even if the clock was set back.
//   2. What the disk does not take is kept, up to kMostUnwritten, and written by the next Flush(); no record is cut in
//      two by it.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/event_file_test.cc)
//   the folder or the file cannot be made, the disk is full -> Error (kCheckpoint) from Flush(), and the records wait
//     -> EventFile.RecordsWaitForAFolder, .RecordsWaitForRoom
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/output_file.h"

namespace lockstep {

// CRC-32C (Castagnoli), as RFC 3720 defines it.
uint32_t Crc32c(std::string_view bytes);

class EventFile {
 public:
  static constexpr size_t kMostUnwritten = 64 << 20;

  // Of a new file in `folder`, which is made in the run folder where there is none. Nothing is written yet.
  explicit EventFile(std::string folder) : folder_(std::move(folder)) {}

  // Adds a record, and writes nothing. One too many is dropped.
  void Add(std::string_view record);

  // Writes what was added. Throws Error.
  void Flush();

 private:
  std::string NewPath() const;

  std::string folder_;
  std::optional<OutputFile> file_;
  int64_t bytes_ = 0;  // that are written
  std::string unwritten_;
};

}  // namespace lockstep
