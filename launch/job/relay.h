// Relay: copies the job's standard output and standard error to this process's own streams.
//
// Promise: the job goes on even if one of this process's streams cannot be written (for example if the disk is full,
// the stream is closed, or the stream's reader has ended). The relay removes from standard error signs, which are
// messages from rank 0 to this process (launch/job/sign.h), lines about lost connections (launch/job/over_ssh.h), and
// zero bytes, with which Open MPI 5 ends its pages. It holds back the text that the job's launcher (mpirun) prints
// to standard error before the ranks have met. When the ranks have met, the relay prints this text. If they never meet,
// the caller prints the text as part of its one error line, because the launcher's text says why the ranks did not meet.
// After the ranks have met, the relay holds back the pages about the job's end and about a lost machine, which mpirun
// prints between two lines of dashes; in Open MPI 5 no setting keeps it from that.
//
// How: the job writes to two pipes, and one thread reads each pipe. Lines that begin with "lockstep: " are Lockstep's
// own. The relay never holds them back.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/files/file_descriptor.h"
#include "launch/job/sign.h"

namespace lockstep {

// Finds signs (launch/job/sign.h) and Lockstep's own lines in a text that arrives in pieces.
class SignReader {
 public:
  // Adds a piece of the text. Returns the text to print, which can be from this piece and from earlier pieces.
  std::string Add(std::string_view piece);
  // Returns the rest of the text to print. Call it after Add() was called for the last piece.
  std::string Finish();

  // Returns whether the text so far had `sign`. Any thread may call it.
  bool Has(Sign sign) const;
  // The launcher's text that was held back: before the ranks have met, all of its text; afterwards its pages.
  std::string held() const { return Has(Sign::kMet) ? pages_ : held_; }
  // Returns whether the text had a line that begins with "lockstep: error: ".
  bool has_error() const { return has_error_; }
  // The machine to which ssh has lost the connection (launch/job/over_ssh.h), the first of several; empty: none.
  const std::string& lost() const { return lost_; }

 private:
  std::string Take(bool all);
  // Returns whether the line must be complete before it is known whether it is passed on.
  bool MustBeComplete(std::string_view beginning) const;
  void PassLine(std::string_view line, std::string& passed);

  std::string pending_;  // text that may be the beginning of a sign or of a line
  std::string held_;
  std::string pages_;
  std::string
      rule_;  // a line of dashes with which a page of the launcher may begin; empty: the last line was none
  bool in_page_ = false;
  std::string lost_;
  std::array<std::atomic<bool>, 128> signs_{};
  bool has_error_ = false;
};

class Relay {
 public:
  // Makes the pipes. Throws Error (kUsage) if the system does not allow that.
  Relay();
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The file descriptors that the job gets as its standard output and standard error.
  int output() const { return output_.writing.get(); }
  int error() const { return error_.writing.get(); }

  // Starts the threads that copy the job's output. Call it when the job has been started.
  void Begin();

  // Returns whether the job has given `sign`. Any thread may call it.
  bool Has(Sign sign) const { return signs_.Has(sign); }

  // Waits until all output of the job has been written. Call it when the job has ended. Call the functions below only
  // after Finish().
  void Finish();
  std::string held() const { return signs_.held(); }
  bool has_error() const { return signs_.has_error(); }
  std::string lost() const { return signs_.lost(); }
  // The errno of the first write to standard output that failed; 0 if none failed, or if only EPIPE was returned
  // because the reader has ended.
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
  FileDescriptor ended_;  // an eventfd that says that the job has ended
  SignReader signs_;
  int output_error_ = 0;
  std::thread output_thread_;
  std::thread error_thread_;
};

}  // namespace lockstep
