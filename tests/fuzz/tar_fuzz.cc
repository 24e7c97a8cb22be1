// Fuzzes the tar reader with arbitrary bytes. VisitTar() must report only members that lie within the archive, or throw
// Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/files/readable_file.h"
#include "base/files/tar_index.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lockstep::MemoryFile file(data, size);
  try {
    const lockstep::ReadableFile archive(file.path());
    int64_t end = 0;
    lockstep::VisitTar(archive, [&](const lockstep::TarMember& member) {
      // Checks that a member begins at or after the end of the previous member, and ends within the archive.
      if (member.offset < end || member.bytes < 0 ||
          member.bytes > archive.bytes() - member.offset) {
        std::abort();
      }
      end = member.offset + member.bytes;
      if (member.name.find('\0') != member.name.npos) std::abort();
    });
  } catch (const lockstep::Error&) {  // the archive was refused
  }
  return 0;
}
