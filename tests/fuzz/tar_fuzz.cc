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
      // Checks that a file ends within the archive and, if it is no link, begins at or after the end of the previous
      // one.
      if (member.offset < 0 || member.bytes < 0 || member.bytes > archive.bytes() - member.offset) {
        std::abort();
      }
      if (member.kind == lockstep::TarMember::kFile) {
        if (member.offset < end) std::abort();
        end = member.offset + member.bytes;
      }
      if (member.name.find('\0') != member.name.npos) std::abort();
    });
  } catch (const lockstep::Error&) {  // the archive was refused
  }
  return 0;
}
