// Connects the watchdogs of the ranks by sockets, and sends messages between them. On a socket, each message is
// preceded by its length, a uint32.
//
// No call throws. No call waits longer than its deadline; Send(), which has no deadline, waits a second at most. A rank
// that does not answer in time counts as silent, and the watchdog reacts to that. The sockets do not block. A deadline
// is a time on the clock of Now().
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

// Returns the time of the monotonic clock, in seconds.
double Now();

// The address of a socket. The hub sends its addresses to the other watchdogs.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Returns the address of a Unix socket that has no file in the file system. `token` makes the address unique.
Address UnixAddress(uint64_t token);

// Returns this machine's IPv4 addresses that other machines may reach, each with `port`.
std::vector<Address> NetworkAddresses(in_port_t port);

// Waits until one of the poll(2) events `events` occurs on `fd`, at most until `deadline`. Returns whether one has
// occurred.
bool WaitFor(int fd, short events, double deadline);

// Connects to `address`. If there is no connection before `deadline`, the returned descriptor is empty.
FileDescriptor ConnectTo(const Address& address, double deadline);

// Sends a message. If the receiver does not read, gives up after a second. The receiver may then have only a part of
// the message, and counts as silent.
void Send(int fd, const watch::Message& message);

// Removes the first message from `inbox` and returns it. Returns nothing if `inbox` does not hold a whole message yet,
// or if the message cannot be parsed.
std::optional<watch::Message> TakeMessage(std::string& inbox);

// Appends to `inbox` the bytes that have arrived. Returns false if the other end has closed the connection, an error
// occurred, or `inbox` holds more bytes than a message may have.
bool Receive(int fd, std::string& inbox);

// Waits for a message and returns it, or nothing if no message comes before `deadline`. The bytes after the message
// stay in `inbox`.
std::optional<watch::Message> AwaitMessage(int fd, std::string& inbox, double deadline);

// Fill() writes a flight record to a message, and FlightOf() reads the record from the message.
void Fill(const Flight& flight, watch::Message& message);
Flight FlightOf(const watch::Message& message, int rank);

}  // namespace lockstep
