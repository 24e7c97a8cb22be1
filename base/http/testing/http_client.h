// For tests: sends an HTTP request to a server on a port of this machine.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/files/file_descriptor.h"
#include "base/write_all.h"

namespace lockstep {

// Returns the whole response, with status line and headers, or an empty text if nothing listens on the port.
inline std::string HttpAnswer(int port, const std::string& target,
                              const std::string& method = "GET") {
  const FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return "";
  }
  (void)WriteAll(client.get(), fmt::format("{} {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                                           method, target));
  std::string all;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = recv(client.get(), piece.data(), piece.size(), 0)) > 0;) {
    all.append(piece.data(), static_cast<size_t>(got));
  }
  return all;
}

}  // namespace lockstep
