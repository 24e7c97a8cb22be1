// Error: the exception that every part of Lockstep throws when a run cannot go on.
//
// Promise: `what()` is one line that says what happened, where (file, line, field, rank, step) and what to do;
// `status()` is the status with which the process must exit.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// The exit statuses of docs/design.md, 'Starting and stopping'.
enum class ExitStatus {
  kDone = 0,
  kUsage = 2,          // the command line or the config is wrong
  kData = 3,           // a data set cannot be read, or cannot be trained on
  kCheckpoint = 4,     // weights or a checkpoint cannot be read or written
  kPeer = 5,           // another rank died, or a collective failed
  kBug = 70,           // an unexpected error, which is a bug in Lockstep
  kStopped = 75,       // the run was asked to stop early; the same command continues it
  kInterrupted = 130,  // the user ended the run (SIGINT, `lockstep stop`, ...)
};

class Error : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& message)
      : std::runtime_error(OnOneLine(message)), status_(status) {}

  // Makes an error that is thrown on every rank at the same point, so that only one rank needs to print it.
  static Error OnEveryRank(ExitStatus status, const std::string& message) {
    Error error(status, message);
    error.on_every_rank_ = true;
    return error;
  }

  ExitStatus status() const { return status_; }
  bool on_every_rank() const { return on_every_rank_; }

 private:
  // Replaces line breaks by spaces. A message can contain line breaks because it may contain a file's name.
  static std::string OnOneLine(std::string text) {
    for (char& c : text) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    return text;
  }

  ExitStatus status_;
  bool on_every_rank_ = false;
};

template <typename... Args>
Error UsageError(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitStatus::kUsage, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
Error DataError(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitStatus::kData, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
Error CheckpointError(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitStatus::kCheckpoint, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
Error PeerError(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitStatus::kPeer, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
Error BugError(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitStatus::kBug, fmt::format(format, std::forward<Args>(args)...)};
}

// Returns the first line of a text, without its line break, for an error message of one line.
inline std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace lockstep
