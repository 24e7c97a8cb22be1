#include "observe/sinks/exporter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/xxh3.h"
#include "base/write_all.h"
#include "observe/sinks/metrics_server.h"
#include "observe/sinks/metrics_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kFreshS = 10;
constexpr size_t kMostBytes = 200'000;  // the maximum size of a datagram; Linux allows more

struct Address {
  sockaddr_un raw{};
  socklen_t bytes = 0;
};

// Returns an abstract address, whose name begins with a zero byte.
Address AddressOf(const std::string& name) {
  Address address;
  address.raw.sun_family = AF_UNIX;
  name.copy(address.raw.sun_path + 1, sizeof(address.raw.sun_path) - 1);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

const sockaddr* Raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.raw);
}

// Returns the next datagram; nothing if there is none, or if a process of another user sent it.
std::optional<std::string> ReceiveText(int socket) {
  std::string text(kMostBytes, '\0');
  iovec bytes{.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return std::nullopt;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) return std::nullopt;
  ucred sender{};
  std::memcpy(&sender, CMSG_DATA(header), sizeof(sender));
  if (sender.uid != geteuid()) return std::nullopt;
  text.resize(static_cast<size_t>(size));
  return text;
}

// Writes a new file, and first removes a file with the same name that a killed process with the same process id may
// have left. In a folder such as /tmp another user may have put a link or a file there, which is neither followed nor
// opened. Returns 0, or the errno of the call that failed.
int WriteNewFile(const std::string& path, const std::string& text) {
  unlink(path.c_str());
  FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) return errno;
  if (const int error = WriteAll(file.get(), text); error != 0) return error;
  return close(file.Release()) == 0 || errno == EINTR ? 0 : errno;
}

}  // namespace

Exporter::Exporter(Options options) : options_(std::move(options)) {
  std::error_code ignored;
  const fs::path run_dir = fs::weakly_canonical(options_.run_dir, ignored);
  name_ = fmt::format("lockstep-metrics-{}-{:016x}", geteuid(), Xxh3Of(run_dir.string()));
}

Exporter::~Exporter() {
  if (has_file_) unlink(options_.file.c_str());
}

void Exporter::Show(const std::string& text) {
  if (!BecomeOwner()) {
    Send(text);
    return;
  }
  const double now = SecondsSinceBoot();
  figures_[options_.rank] = {text, now};
  std::erase_if(figures_, [&](const auto& entry) { return entry.second.time < now - kFreshS; });
  std::vector<std::string_view> texts;
  for (const auto& [rank, figures] : figures_) texts.emplace_back(figures.text);
  std::string page = MergedMetrics(texts);
  if (!options_.file.empty()) WriteFile(page);
  if (options_.port == 0) return;
  if (!server_) server_ = std::make_unique<MetricsServer>(options_.address, options_.port);
  server_->SetPage(std::move(page));
}

bool Exporter::BecomeOwner() {
  if (owner_) return true;
  constexpr int kKind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  if (socket_.get() < 0) socket_ = FileDescriptor(::socket(AF_UNIX, kKind, 0));
  const Address address = AddressOf(name_);
  if (bind(socket_.get(), Raw(address), address.bytes) != 0) return false;
  // This option must not be set before bind() succeeds. When a socket with this option sends before it has a name,
  // Linux gives the socket a name, and bind() fails from then on.
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  owner_ = true;
  return true;
}

void Exporter::Send(const std::string& text) const {
  const Address address = AddressOf(name_);
  const std::string datagram = fmt::format("{}\n{}", options_.rank, text);
  // If the owner is gone or does not read, the datagram is lost, and the next datagram is sent in a second.
  (void)sendto(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               Raw(address), address.bytes);
}

void Exporter::Receive() {
  const std::optional<std::string> datagram = ReceiveText(socket_.get());
  if (!datagram) return;
  const size_t end = datagram->find('\n');
  int rank = -1;
  std::from_chars(datagram->data(), datagram->data() + std::min(end, datagram->size()), rank);
  if (rank < 0 || end == std::string::npos) return;
  figures_[rank] = {datagram->substr(end + 1), SecondsSinceBoot()};
}

void Exporter::WriteFile(const std::string& page) {
  // node_exporter reads only files whose names end in .prom, so it does not read this partial file.
  const std::string partial = fmt::format("{}.tmp.{}", options_.file, getpid());
  int error = WriteNewFile(partial, page);
  if (error == 0 && rename(partial.c_str(), options_.file.c_str()) != 0) error = errno;
  if (error == 0) {
    has_file_ = true;
    return;
  }
  unlink(partial.c_str());
  throw CheckpointError(
      "observe.prometheus_file: {}: cannot be written: {}: the run goes on, and it is tried again",
      options_.file, std::strerror(error));
}

}  // namespace lockstep
