#include "comm/watch/wire.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

using watch::Message;

constexpr uint32_t kMaxMessage = 16 << 20;  // bytes

}  // namespace

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Address UnixAddress(uint64_t token) {
  Address address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  unix_address.sun_family = AF_UNIX;
  // This is an abstract socket name, which begins with a zero byte and leaves no file behind.
  const std::string name = fmt::format("lockstep-{:016x}", token);
  std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
  address.length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return address;
}

std::vector<Address> NetworkAddresses(in_port_t port) {
  std::vector<Address> addresses;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
                        (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable) continue;
    Address address;
    std::memcpy(&address.storage, i->ifa_addr, sizeof(sockaddr_in));
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = port;
    address.length = sizeof(sockaddr_in);
    addresses.push_back(address);
  }
  freeifaddrs(interfaces);
  return addresses;
}

bool WaitFor(int fd, short events, double deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const double left = deadline - Now();
    if (left <= 0) return false;
    const int ready = poll(&entry, 1, static_cast<int>(left * 1e3) + 1);
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

FileDescriptor ConnectTo(const Address& address, double deadline) {
  FileDescriptor fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return {};
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  while (connect(fd.get(), name, address.length) != 0) {
    if (errno == EISCONN) break;
    // If the listener's queue is full, connect() on a Unix socket fails with EAGAIN, and poll() cannot wait until the
    // queue has a free place.
    if (errno == EAGAIN && Now() < deadline) {
      poll(nullptr, 0, 10);
      continue;
    }
    if (errno != EINPROGRESS && errno != EALREADY) return {};
    if (!WaitFor(fd.get(), POLLOUT, deadline)) return {};
  }
  return fd;
}

void Send(int fd, const Message& message) {
  std::string bytes(sizeof(uint32_t), '\0');
  const auto length = static_cast<uint32_t>(message.ByteSizeLong());
  std::memcpy(bytes.data(), &length, sizeof(length));
  message.AppendToString(&bytes);
  size_t sent = 0;
  const double deadline = Now() + 1;
  while (sent < bytes.size()) {
    const ssize_t count = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += count;
    } else if (errno == EINTR) {
      continue;
    } else if (errno != EAGAIN || !WaitFor(fd, POLLOUT, deadline)) {
      return;
    }
  }
}

std::optional<Message> TakeMessage(std::string& inbox) {
  uint32_t length = 0;
  if (inbox.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, inbox.data(), sizeof(length));
  if (length > kMaxMessage || inbox.size() < sizeof(length) + length) return std::nullopt;
  Message message;
  const bool good = message.ParseFromArray(inbox.data() + sizeof(length), static_cast<int>(length));
  inbox.erase(0, sizeof(length) + length);
  return good ? std::optional(message) : std::nullopt;
}

bool Receive(int fd, std::string& inbox) {
  char bytes[65536];
  while (inbox.size() <= kMaxMessage) {
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) {
      inbox.append(bytes, count);
    } else if (count == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return false;
}

std::optional<Message> AwaitMessage(int fd, std::string& inbox, double deadline) {
  std::optional<Message> message;
  while (!message && WaitFor(fd, POLLIN, deadline) && Receive(fd, inbox)) {
    message = TakeMessage(inbox);
  }
  return message;
}

void Fill(const Flight& flight, Message& message) {
  for (const Channel channel : kChannels) {
    const Flight::Lane& from = flight.of(channel);
    watch::Lane& to = *message.add_lanes();
    to.set_enqueued(from.enqueued);
    to.set_done(from.done);
    for (const FlightRecord& record : from.records) {
      watch::Record& copy = *to.add_records();
      copy.set_sequence(record.sequence);
      copy.set_op(static_cast<uint32_t>(record.op));
      copy.set_bytes(record.bytes);
      copy.set_label(record.label);
      copy.set_step(record.step);
      copy.set_enqueued_ns(record.enqueued_ns);
      copy.set_done_ns(record.done_ns);
      copy.set_chain(record.chain);
    }
  }
}

Flight FlightOf(const Message& message, int rank) {
  Flight flight{.rank = rank};
  for (size_t i = 0; i < std::min<size_t>(message.lanes_size(), kChannels.size()); ++i) {
    const watch::Lane& from = message.lanes(static_cast<int>(i));
    Flight::Lane& to = flight.lanes[i];
    to.enqueued = from.enqueued();
    to.done = from.done();
    for (const watch::Record& record : from.records()) {
      to.records.push_back({.sequence = record.sequence(),
                            .op = static_cast<Op>(record.op()),
                            .bytes = record.bytes(),
                            .label = record.label(),
                            .step = record.step(),
                            .enqueued_ns = static_cast<int64_t>(record.enqueued_ns()),
                            .done_ns = static_cast<int64_t>(record.done_ns()),
                            .chain = record.chain()});
    }
  }
  return flight;
}

}  // namespace lockstep
