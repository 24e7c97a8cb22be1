// The connections between watchdogs: the addresses of the sockets, and the messages. On a socket, each message is
// preceded by its length.
//
// No call throws, and no call waits longer than its deadline. A rank that does not answer in time counts as silent, and
// the watchdog reacts to that. The sockets do not block. A deadline is a time on the clock of Now().
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/file_descriptor.h"
#include "comm/flight_recorder.h"
#include "comm/watch/watchdog.pb.h"

namespace lockstep {

// Seconds of the monotonic clock.
double Now();

// A socket's address, as it travels from the hub to the others.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Of a Unix socket that leaves nothing in the file system.
Address UnixAddress(uint64_t token);

// This machine's IPv4 addresses that others may reach, with `port`.
std::vector<Address> NetworkAddresses(in_port_t port);

// Waits until `fd` has one of `events`, or `deadline`. Returns whether it has.
bool WaitFor(int fd, short events, double deadline);

// Without a connection: a descriptor that holds none.
FileDescriptor ConnectTo(const Address& address, double deadline);

// Sends a message, or a part of it where the receiver does not read: it is then silent for us anyway.
void Send(int fd, const watch::Message& message);

// The first message of `inbox`, once all of it is there.
std::optional<watch::Message> TakeMessage(std::string& inbox);

// Reads what has come. False when the other end is closed, or does not speak as we do.
bool Receive(int fd, std::string& inbox);

// The first message to come before `deadline`; what follows it stays in `inbox`.
std::optional<watch::Message> AwaitMessage(int fd, std::string& inbox, double deadline);

// A flight record as a message, and back.
void Fill(const Flight& flight, watch::Message& message);
Flight FlightOf(const watch::Message& message, int rank);

}  // namespace lockstep
