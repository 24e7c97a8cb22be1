#include "base/say.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>

#include "base/write_all.h"

namespace lockstep {
namespace {

std::atomic<int> output_error{0};
std::atomic<bool> line_is_drawn{false};

void WriteOutput(std::string_view text) {
  const int error = WriteAll(STDOUT_FILENO, text);
  int none = 0;
  if (error != 0 && error != EPIPE) output_error.compare_exchange_strong(none, error);
}

// Writes the message with one call of write(), so that the lines of several processes do not mix.
void WriteMessage(std::string_view kind, const std::string& what) {
  RemoveLine();
  WriteAll(STDERR_FILENO, fmt::format("lockstep: {}: {}\n", kind, Printable(what)));
}

}  // namespace

void SecureStandardStreams() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    // open() returns the lowest free descriptor number, which is `file`, because all lower numbers are open.
    if (fcntl(file, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

std::optional<std::string> Repeats::Count(const std::string& text) {
  std::string kind = text;
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  const uint64_t times = ++times_[kind];
  if (times == 1) return "";
  if (!std::has_single_bit(times)) return std::nullopt;
  return fmt::format(" ({} times so far)", times);
}

void Announce(const std::string& line) {
  RemoveLine();
  WriteAll(STDERR_FILENO, Printable(line) + "\n");
}

void Warn(const std::string& what) { WriteMessage("warning", what); }

void PrintError(const std::string& what) { WriteMessage("error", what); }

void PrintText(std::string_view text) { WriteOutput(Printable(text)); }

void PrintControl(std::string_view sequence) { WriteOutput(sequence); }

void DrawLine(std::string_view sequence) {
  WriteOutput(sequence);
  line_is_drawn = true;
}

void RemoveLine() {
  if (line_is_drawn.exchange(false)) WriteOutput("\r\033[K");
}

int OutputError() { return output_error; }

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // In UTF-8 these two bytes are a character from U+0080 to U+009F. Terminals treat these characters as control
    // codes, like the characters below U+0020.
    const bool is_c1 = c == 0xc2 && next >= 0x80 && next < 0xa0;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      printable += fmt::format("\\x{:02x}", c);
    } else if (is_c1) {
      printable += fmt::format("\\x{:02x}", next);
      ++i;
    } else {
      printable += text[i];
    }
  }
  return printable;
}

}  // namespace lockstep
