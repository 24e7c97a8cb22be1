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

inline FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Connects a socket to a port of this machine, and returns whether a server listens there.
inline bool ConnectTo(int port, const FileDescriptor& client) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Returns all bytes that come until the server closes the connection.
inline std::string ReadToEnd(const FileDescriptor& client) {
  std::string all;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = recv(client.get(), piece.data(), piece.size(), 0)) > 0;) {
    all.append(piece.data(), static_cast<size_t>(got));
  }
  return all;
}

// Sends `text`, and returns the whole response, with status line and headers, or an empty text if nothing listens on
// the port.
inline std::string HttpAnswerTo(int port, const std::string& text) {
  const FileDescriptor client = NewSocket();
  if (!ConnectTo(port, client)) return "";
  (void)WriteAll(client.get(), text);
  return ReadToEnd(client);
}

// The same for a request with these parts.
inline std::string HttpAnswer(int port, const std::string& target,
                              const std::string& method = "GET",
                              const std::string& host = "localhost") {
  return HttpAnswerTo(port, fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                                        method, target, host));
}

}  // namespace lockstep
