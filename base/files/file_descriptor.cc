#include "base/files/file_descriptor.h"

#include <cerrno>

namespace lockstep {

std::optional<size_t> ReadAt(const FileDescriptor& file, int64_t offset, std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = pread(file.get(), to.data() + done, to.size() - done,
                              static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace lockstep
