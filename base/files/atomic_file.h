// WriteFileAtomically(): writes a file so that it appears whole or not at all.
//
// Promise: when WriteFileAtomically() returns, `path` holds the new content and survives a power cut. If it throws, or
// the process is killed while it runs, `path` holds the whole old content, or after step 4 the whole new content.
// Readers need no lock, because rename replaces the file in one step.
//
// Protocol:
//   1. create the file PATH.tmp.PID
//   2. write everything
//   3. fsync the file: the content must be on the disk before the file gets its name
//   4. rename the file to PATH
//   5. fsync the folder, so that the new name is on the disk. The folder is opened before step 4, because another
//      process that waits for the file may rename the folder as soon as the file has its name. Rank 0 renames a
//      checkpoint's folder in this way
// If the file system supports O_DIRECT, large content bypasses the page cache. Such content is written in pieces, and
// each piece is written while the caller produces the next piece. Writing 1.49 GB from a GPU takes 0.80 to 0.86 s; `dd
// bs=16M oflag=direct` takes 0.83 to 0.84 s. With the page cache the same write takes 1.4 to 1.7 s. A process that is
// killed between steps 1 and 4 leaves PATH.tmp.PID behind, and RemoveTornWrites() removes it.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/atomic_file_test.cc)
//   no folder, no permission, disk full, write error -> Error (kCheckpoint) with the path and the
//     system's reason; no temporary file is left -> AtomicFile.AFailureLeavesTheOldFile,
//     .AFailureWithinWhatIsLargeLeavesTheOldFile
//   a process is killed while it writes -> its temporary file, until RemoveTornWrites()
//     -> .WhatAKilledProcessLeavesIsRemoved
//   the folder is renamed once the file is there -> nothing -> .AFolderThatIsRenamedMeanwhile
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/files/output_file.h"

namespace lockstep {

inline constexpr WriteErrors kSaving{ExitStatus::kCheckpoint, "make room"};

// The type of a function that appends bytes to the file that is being written.
using AppendBytes = std::function<void(std::span<const std::byte>)>;

// Makes the file, or empties an existing one, calls `write` once with a function that appends bytes to the file, and
// fsyncs the file. The caller must sync the folder, so that the file's name is on the disk. If this function fails, it
// leaves a partial file, which the caller must remove. `own_names`: see base/files/open_file.h. Throws Error
// (kCheckpoint), and any exception of `write`.
void WriteDurably(const std::string& path, int own_names,
                  const std::function<void(const AppendBytes&)>& write);

// Writes the file `path` by the protocol above. Calls `write` once, with a function that appends bytes. Throws Error
// (kCheckpoint), and any exception of `write`.
void WriteFileAtomically(const std::string& path,
                         const std::function<void(const AppendBytes&)>& write);

// Writes the file `path` by the protocol above, with the content `text`. Throws Error (kCheckpoint).
void WriteFileAtomically(const std::string& path, std::string_view text);

// Removes the temporary files of processes that were killed while they wrote `path`. No process may be writing `path`
// at the same time. Files that cannot be removed stay, because they do no harm.
void RemoveTornWrites(const std::string& path);

}  // namespace lockstep
