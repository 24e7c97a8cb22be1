// Writes files into a POSIX tar archive (IEEE 1003.1, pax interchange format).
//
// Promise: the bytes depend only on the members' names and contents: time, owner and group are 0, and the mode is
// 0644. tar, Python's tarfile and base/files/tar_index.h read the archive.
//
// Lockstep does not use libarchive, for two reasons. Lockstep's archives have only two kinds of members, files and pax
// records. The pax records that libarchive writes depend on libarchive's version, but a shard that is made again must
// have the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Returns how many bytes a member with this name and size takes in an archive.
int64_t TarMemberBytes(const std::string& name, int64_t bytes);

// Appends the member to `archive`. If the name does not fit in ustar's fields (100 bytes, or 155 and 100 bytes around a
// slash), a pax record before the member holds the name. `content` must have less than 8 GiB.
void AppendTarMember(const std::string& name, std::span<const std::byte> content,
                     std::string& archive);

// Appends a header of `type`, and `content` in whole blocks. AppendTarMember() uses this function. If the name does not
// fit in ustar's fields, the header holds only the first 100 bytes of the name.
void AppendTarBlocks(std::string_view name, char type, std::string_view content,
                     std::string& archive);

// Appends two blocks of zeros, the end of an archive.
void AppendTarEnd(std::string& archive);

}  // namespace lockstep
