// Prints what a user reads: warnings and errors on standard error, results and progress on standard output.
//
// Promise: if text cannot be written, because the disk is full, the stream is closed or its reader has left, the
// process goes on as if the text had been written. Control characters other than line ends and tabs would move a
// terminal's cursor (a file's name may have such characters). They are shown as codes, such as \x1b.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Prepares the standard streams; main() must call it first. If standard input, output or error is closed, opens
// /dev/null in its place. If the stream stayed closed, a file that is opened later could get the stream's descriptor
// number, and messages would be written into that file. Also lets writes that fail return an error instead of ending
// the process (SIGPIPE, SIGXFSZ).
void SecureStandardStreams();

// Prints a warning: a problem that the user should know and that does not end the run.
void Warn(const std::string& what);

// Counts how often a text is printed. Texts that differ only in their digits count as the same text.
class Repeats {
 public:
  // Counts `text`, and returns what to print after it: an empty text the first time, and a text such as
  // " (4 times so far)" the 2nd, 4th, 8th, ... time. Returns no value if `text` must not be printed this time.
  std::optional<std::string> Count(const std::string& text);

 private:
  std::map<std::string, uint64_t> times_;
};

// Prints a line on standard error that is neither a warning nor an error.
void Announce(const std::string& line);

// Prints the error with which a command ends.
void PrintError(const std::string& what);

// Prints text to standard output without a buffer.
void PrintText(std::string_view text);

template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  PrintText(fmt::format(format, std::forward<Args>(args)...));
}

// Prints a terminal control sequence as it is, without replacing characters.
void PrintControl(std::string_view sequence);

// Prints `sequence`, which draws a line without a line end on the terminal of standard output. The next warning, error
// or announcement removes the line before it prints.
void DrawLine(std::string_view sequence);

// Removes the line that DrawLine() has drawn, if the line is still there. Any thread may call RemoveLine().
void RemoveLine();

// Returns the errno of the first write to standard output that failed. Returns 0 if none failed; a write that failed
// because the reader had closed the pipe (EPIPE) does not count.
int OutputError();

// Returns `text` with a code such as \x1b in place of each control character. Line ends and tabs stay.
std::string Printable(std::string_view text);

}  // namespace lockstep
