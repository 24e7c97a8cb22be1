// VisitTar(): finds the files in a tar archive, and the place where each file begins.
//
// Promise: VisitTar() gives every regular file that Python's tarfile finds, in the archive's order, with its whole name
// and the place where its bytes begin. It also gives every link. A hard or symbolic link to a file of the archive has
// this file's place, as tarfile's extractfile() has; links to links are followed. It reads these formats: ustar, GNU
// (long names, sizes of 8 GiB and more in base 256), pax (only the records "path", "linkpath" and "size" of a member),
// and the old format of Unix version 7. It skips folders, devices and members of other types, and a pax archive's
// global header.
//
// Invariants:
//   1. VisitTar() uses only the headers and not the content of the files. It makes at most one read of 8 KiB for each
//      header, and one more read for each long name and for each pax record block. If the archive holds links, it does
//      so twice.
//   2. VisitTar() checks that every header has the right checksum, that every member ends within the archive, and that
//      the archive ends with a block of zeros. (An archive that was cut between two members lacks this block.) It
//      ignores bytes after the block of zeros.
//   3. A link never leads out of the archive: an absolute path, and one that begins with "..", leads to nothing.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/tar_index_test.cc)
//   an empty file, a compressed archive, no archive -> Error (kData) with path
//     -> TarIndex.RefusesWhatIsNoArchive
//   the archive is cut short anywhere -> Error (kData) with path and byte -> TarIndex.RefusesEveryCut
//   a header is damaged -> Error (kData) with path and byte -> TarIndex.RefusesDamagedHeaders
//   a sparse file, whose bytes are not in one piece -> Error (kData) naming it -> TarIndex.RefusesSparseFiles
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/files/readable_file.h"

namespace lockstep {

struct TarMember {
  enum Kind {
    kFile,
    kLinkToFile,
    kLinkToFolder,   // to a folder of the archive
    kLinkToNothing,  // to a path that the archive does not hold
  };

  Kind kind = kFile;
  std::string_view name;    // the name without "./" or "/" at its beginning
  std::string_view target;  // the path that a link holds; empty for a file
  // The place of the bytes of the file, or of the file that the link leads to.
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Calls visit(member) for each regular file and each link in `archive`. Throws Error (kData).
void VisitTar(const ReadableFile& archive, const std::function<void(const TarMember&)>& visit);

}  // namespace lockstep
