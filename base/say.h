// Prints what a user reads: warnings and errors on standard error, results and progress on standard output.
//
// Promise: if text cannot be written, because the disk is full, the stream is closed or its reader has left, the
// process goes on as if the text had been written. Characters that would move a terminal's cursor (a file's name may
// have such characters) are shown as a code, such as \x1b.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// To be called first in main(): opens what is closed of standard input, output and error, so that no file gets their
// numbers and the messages with them, and lets writes that come to nothing fail instead of ending the process (SIGPIPE,
// SIGXFSZ).
void SecureStandardStreams();

// What a user should know and a run can bear.
void Warn(const std::string& what);

// Counts what is said again and again, but for the numbers in it.
class Repeats {
 public:
  // What to put behind it: nothing the first time, " (4 times so far)" the 2nd, 4th, 8th ... time. No value: it was said
  // often enough.
  std::optional<std::string> Count(const std::string& text);

 private:
  std::map<std::string, uint64_t> times_;
};

// A line on standard error that is neither.
void Announce(const std::string& line);

// Why a command ends.
void PrintError(const std::string& what);

// To standard output, at once.
void PrintText(std::string_view text);

template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  PrintText(fmt::format(format, std::forward<Args>(args)...));
}

// What moves a terminal's cursor, as it is.
void PrintControl(std::string_view sequence);

// Why standard output did not take what was printed, the first time (errno); 0: it took all, or its reader had enough.
int OutputError();

// `text` with what is no character of a line written as \xNN, but for line ends and tabs.
std::string Printable(std::string_view text);

}  // namespace lockstep
