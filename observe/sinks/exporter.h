// Exporter: shows the figures of all ranks of one machine to Prometheus, on a port or as a file for node_exporter.
//
// Promise: of a run's ranks on a machine one is the owner: it has the port and writes the file, with the last figures of
// each rank. If the owner ends, however it ends, another rank takes its place within two seconds.
//
// Protocol, once a second in each rank:
//   1. The rank tries to bind the abstract Unix socket whose name follows from user and run folder. The kernel gives
//      a name to one process and takes it back when that process ends, so this process is the owner. It needs no file,
//      and the name holds where the port does: in one network namespace.
//   2. A rank that is not the owner sends its figures to that socket as one datagram, and does not wait if the owner
//      does not read.
//   3. The owner reads datagrams as they come, of its own user's processes only. It leaves out ranks from which nothing
//      came for kFreshS, opens the port if it has not, and writes the file under another name and renames it.
//   4. When the owner's job ends in order, it removes the file: node_exporter would show it for ever.
//
// what can fail -> what the caller sees -> the test that shows it (observe/sinks/exporter_test.cc)
//   the port is taken -> Error (kUsage) from Show(), and the next one tries again
//     -> ExporterTest.NamesThePortThatIsTaken
//   the file cannot be written -> Error (kCheckpoint) from Show(), likewise
//     -> .AFileThatCannotBeWrittenIsNamedAndTriedAgain
//   the owner is killed -> nothing: another serves -> .AnotherServesWhenTheOwnerIsKilled
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
    int port = 0;  // 0: none
    std::string file;
    std::string run_dir;
    int rank = 0;
  };

  explicit Exporter(Options options);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // This rank's figures now (observe/sinks/metrics_text.h). To be called once a second. Throws Error.
  void Show(const std::string& text);

  // What other ranks send to the owner; -1: this rank is not the owner.
  int socket() const { return owner_ ? socket_.get() : -1; }

  // Reads it.
  void Receive();

 private:
  struct Figures {
    std::string text;
    double time = 0;  // SecondsSinceBoot() when they came
  };

  bool BecomeOwner();
  void Send(const std::string& text) const;
  void WriteFile(const std::string& page);

  Options options_;
  std::string name_;       // of the socket
  FileDescriptor socket_;  // the owner's has the name
  bool owner_ = false;
  bool has_file_ = false;                  // that it wrote
  std::map<int, Figures> figures_;         // the owner's, by rank
  std::unique_ptr<MetricsServer> server_;  // the owner's, once the port was free
};

}  // namespace lockstep
