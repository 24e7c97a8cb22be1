// Relay: copies the job's standard output and standard error to this process's own streams.
//
// Promise: a stream that is full or closed, or whose reader has left, never delays or ends the job. The relay removes
// signs (launch/job/sign.h). The relay holds back the text that the job's launcher (mpirun) prints before the ranks
// have met. If the ranks meet, the relay then prints this text. If the ranks do not meet, the caller prints the text as
// part of its one error line, because the text says why.
//
// How: there are two pipes, and one thread reads each pipe. Lockstep's own lines, "lockstep: ...", are always passed on
// at once.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/files/file_descriptor.h"
#include "launch/job/sign.h"

namespace lockstep {

// What signs and lines there are in a text that comes in pieces.
class SignReader {
 public:
  // What of it and of the pieces before is to be written now.
  std::string Add(std::string_view piece);
  // The rest, once no piece follows.
  std::string Finish();

  bool Has(Sign sign) const;
  // What was held back, as ranks have not met.
  std::string held() const { return held_; }
  // Whether there was a line "lockstep: error: ...".
  bool has_error() const { return has_error_; }

 private:
  std::string Take(bool all);
  void PassLine(std::string_view line, std::string& passed);

  std::string pending_;  // that may be a sign's or a line's beginning
  std::string held_;
  std::array<std::atomic<bool>, 128> signs_{};
  bool has_error_ = false;
};

class Relay {
 public:
  // Throws Error (kUsage).
  Relay();
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // What the job is to write to.
  int output() const { return output_.writing.get(); }
  int error() const { return error_.writing.get(); }

  // The job has been started.
  void Begin();

  // From any thread.
  bool Has(Sign sign) const { return signs_.Has(sign); }

  // The job has ended: what it has written is on its way. The others are for afterwards.
  void Finish();
  std::string held() const { return signs_.held(); }
  bool has_error() const { return signs_.has_error(); }
  // Why standard output did not take all (errno); 0: it did, or its reader had enough.
  int output_error() const { return output_error_; }

 private:
  struct Pipe {
    FileDescriptor reading;
    FileDescriptor writing;
  };
  static Pipe MakePipe();
  template <typename Take>
  void Pump(const Pipe& pipe, const Take& take) const;

  Pipe output_;
  Pipe error_;
  FileDescriptor ended_;  // an event
  SignReader signs_;
  int output_error_ = 0;
  std::thread output_thread_;
  std::thread error_thread_;
};

}  // namespace lockstep
