// Exporter: shows the figures of all ranks of one machine to Prometheus, on a port or as a file for node_exporter.
//
// Promise: one of a run's ranks on a machine is the owner. The owner answers on the port and writes the file, both with
// the last figures of each rank. If the owner ends, no matter how, another rank becomes the owner within two seconds.
//
// Protocol, once a second in each rank:
//   1. The rank tries to bind an abstract Unix socket, whose name follows from the user and the run folder. The kernel
//      lets only one process bind a name. This process is the owner, and the kernel frees the name when the process
//      ends. An abstract name needs no file, and, like the port, it belongs to one network namespace.
//   2. A rank that is not the owner sends its figures to that socket as one datagram. The rank does not wait, even if
//      the owner does not read.
//   3. The owner reads datagrams as they come, and drops datagrams of other users' processes. Once a second the owner
//      drops the figures of ranks from which nothing came for kFreshS seconds, opens the port if it is not open yet,
//      and replaces the file by a rename. No other user can make the owner write to another file: whatever has the name
//      of the file or of its partial file is replaced, and links are not followed.
//   4. When the owner's job ends normally, the owner removes the file. If the file stayed, node_exporter would show its
//      figures for ever.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is taken -> Error (kUsage) from Show(), and the next Show() tries again
//     -> ExporterTest.NamesThePortThatIsTaken
//   the file cannot be written -> Error (kCheckpoint) from Show(), and the next Show() tries again
//     -> ExporterTest.AFileThatCannotBeWrittenIsNamedAndTriedAgain
//   there is a link in the place of the partial file -> nothing, and the link's target stays unchanged
//     -> ExporterTest.FollowsNoLink
//   the owner is killed -> nothing: another rank becomes the owner
//     -> ExporterTest.AnotherServesWhenTheOwnerIsKilled
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

class MetricsServer;

class Exporter {
 public:
  struct Options {
    std::string address;
    int port = 0;      // 0: no port
    std::string file;  // empty: no file
    std::string run_dir;
    int rank = 0;
  };

  explicit Exporter(Options options);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Shows `text`, the figures that this rank has now (observe/sinks/metrics_text.h). Must be called once a second.
  // Throws Error (kUsage) if the port cannot be opened, and Error (kCheckpoint) if the file cannot be written.
  void Show(const std::string& text);

  // Returns the socket to which other ranks send their figures; -1 if this rank is not the owner.
  int socket() const { return owner_ ? socket_.get() : -1; }

  // Reads one datagram from socket(), if a datagram waits there. Must be called only on the owner.
  void Receive();

 private:
  struct Figures {
    std::string text;
    double time = 0;  // SecondsSinceBoot() when the text came
  };

  bool BecomeOwner();
  void Send(const std::string& text) const;
  void WriteFile(const std::string& page);

  Options options_;
  std::string name_;       // the name of the owner's socket
  FileDescriptor socket_;  // on the owner: bound to name_; on other ranks: used to send figures
  bool owner_ = false;
  bool has_file_ = false;                  // whether this process has written the file
  std::map<int, Figures> figures_;         // on the owner: the figures of each rank
  std::unique_ptr<MetricsServer> server_;  // on the owner: the server, once the port is open
};

}  // namespace lockstep
