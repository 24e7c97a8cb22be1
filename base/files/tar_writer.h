// TarWriter: writes files into a POSIX tar archive (IEEE 1003.1, pax interchange format).
//
// Promise: the bytes depend only on the members' names and contents: time, owner and group are 0, and the mode is
// 0644. tar, Python's tarfile and data/tar_index read the archive.
//
// We do not use libarchive. We need only two kinds of block. The pax records that libarchive writes depend on
// libarchive's version, but a shard that is made again must have the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// What a member of that name and size takes in an archive, in bytes.
int64_t TarMemberBytes(const std::string& name, int64_t bytes);

// Appends the member to `archive`. A name that does not fit ustar's 100 bytes, or 155 and 100 around a
// slash, goes into a pax record before it. `content` is less than 8 GiB.
void AppendTarMember(const std::string& name, std::span<const std::byte> content,
                     std::string& archive);

// Appends a header of `type` and `content` in whole blocks, which AppendTarMember() makes its members of. Of
// a name that does not fit the first 100 bytes are kept.
void AppendTarBlocks(std::string_view name, char type, std::string_view content,
                     std::string& archive);

// Two blocks of zeros.
void AppendTarEnd(std::string& archive);

}  // namespace lockstep
