#include "base/files/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr unsigned kMode = 0666;

// Removes the last name from `path` and returns it.
std::string CutName(std::string_view& path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string name(path.substr(slash == std::string_view::npos ? 0 : slash + 1));
  path = slash == std::string_view::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  return name;
}

std::string WhyNot(int folder, const std::string& name, int error) {
  struct stat status {};
  const bool is_odd =
      fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode);
  // For a link, a socket, a folder or a path through a plain file, open() fails with one of these errors. Their own
  // texts would not tell the user what kind of file lies there.
  if (is_odd && (error == ELOOP || error == ENXIO || error == EISDIR || error == ENOTDIR)) {
    return fmt::format("it is {}", KindName(status.st_mode));
  }
  return std::strerror(error);
}

}  // namespace

const char* KindName(unsigned mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISREG(mode)) return "a file";
  return "a device";
}

std::string WhyNoPlainFile(unsigned mode) {
  if (S_ISREG(mode)) return "";
  return fmt::format("it is {} where a plain file is expected", KindName(mode));
}

FileDescriptor OpenPlainFile(const std::string& path, int own_names, int flags, std::string& why) {
  why.clear();
  std::string names[kInCheckpoint];
  std::string_view rest = path;
  for (int i = own_names - 1; i >= 0; --i) names[i] = CutName(rest);
  FileDescriptor folder;
  int at = AT_FDCWD;
  if (own_names > 0) {
    folder = FileDescriptor(open(std::string(rest).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (int i = 0; i < own_names - 1 && folder.get() >= 0; ++i) {
      FileDescriptor next(
          openat(folder.get(), names[i].c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (next.get() < 0) {
        why = fmt::format("{}: {}", names[i], WhyNot(folder.get(), names[i], errno));
        return {};
      }
      folder = std::move(next);
    }
    if (folder.get() < 0) {
      why = std::strerror(errno);
      return {};
    }
    at = folder.get();
    flags |= O_NOFOLLOW;
  }
  const std::string& name = own_names > 0 ? names[own_names - 1] : path;
  FileDescriptor file(openat(at, name.c_str(), flags | O_NONBLOCK | O_CLOEXEC, kMode));
  if (file.get() < 0) {
    why = WhyNot(at, name, errno);
    return {};
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0) {
    why = std::strerror(errno);
    return {};
  }
  if (!S_ISREG(status.st_mode)) {
    why = fmt::format("it is {}", KindName(status.st_mode));
    return {};
  }
  return file;
}

std::string ReadGivenFile(const std::string& path, size_t most_bytes, std::string& why) {
  constexpr int kPatienceMs = 5000;
  why.clear();
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    why = std::strerror(errno);
    return "";
  }
  if (S_ISDIR(status.st_mode)) {
    why = "it is a folder";
    return "";
  }
  std::string text;
  std::array<char, 65536> piece;
  while (text.size() <= most_bytes) {
    pollfd waited{.fd = file.get(), .events = POLLIN};
    if (S_ISFIFO(status.st_mode) && poll(&waited, 1, kPatienceMs) == 0) {
      why = fmt::format("it is a pipe, and nothing came out of it for {} s", kPatienceMs / 1000);
      return "";
    }
    const ssize_t got = read(file.get(), piece.data(), piece.size());
    if (got < 0 && (errno == EINTR || (errno == EAGAIN && S_ISFIFO(status.st_mode)))) continue;
    if (got < 0) {
      why = std::strerror(errno);
      return "";
    }
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  why = fmt::format("it has more than the {} bytes that make sense", most_bytes);
  return "";
}

std::string ReadPlainFile(const std::string& path, int own_names, size_t most_bytes,
                          std::string& why) {
  const FileDescriptor file = OpenPlainFile(path, own_names, O_RDONLY, why);
  struct stat status {};
  if (file.get() < 0) return "";
  if (fstat(file.get(), &status) != 0) {
    why = std::strerror(errno);
    return "";
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes > most_bytes) {
    why = fmt::format("it has {} bytes, more than the {} that make sense", bytes, most_bytes);
    return "";
  }
  std::string text(bytes, '\0');
  const std::optional<size_t> got = ReadAt(file, 0, std::as_writable_bytes(std::span(text)));
  if (!got) {
    why = std::strerror(errno);
    return "";
  }
  text.resize(*got);
  return text;
}

}  // namespace lockstep
