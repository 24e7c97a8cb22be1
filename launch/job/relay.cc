#include "launch/job/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/write_all.h"
#include "launch/job/over_ssh.h"

namespace lockstep {
namespace {

constexpr char kSeparator = '\x1e';
constexpr std::string_view kSignEnd = "\x1e\n";
constexpr size_t kMostHeld = size_t{64} << 10;
constexpr std::string_view kOurs = "lockstep: ";
constexpr std::string_view kError = "lockstep: error: ";
// The words with which Open MPI's pages about the end of a job and about a lost machine begin.
constexpr std::string_view kPages[] = {"prterun ",
                                       "mpirun ",
                                       "Primary job ",
                                       "PRTE has lost ",
                                       "ORTE has lost ",
                                       "PRTE does not know ",
                                       "ORTE does not know ",
                                       "A daemon failed to report back"};

// Returns whether the line is one of the lines of dashes around the pages that mpirun prints.
bool IsRule(std::string_view line) {
  constexpr size_t kLeast = 40;
  return line.size() > kLeast && line.ends_with('\n') &&
         line.find_first_not_of('-') == line.size() - 1;
}

void Append(std::string_view line, std::string& text) {
  if (text.size() < kMostHeld) text += line;
}

}  // namespace

bool SignReader::Has(Sign sign) const { return signs_[static_cast<size_t>(sign)]; }

std::string SignReader::Add(std::string_view piece) {
  pending_ += piece;
  std::erase(pending_, '\0');
  return Take(/*all=*/false);
}

std::string SignReader::Finish() { return Take(/*all=*/true); }

std::string SignReader::Take(bool all) {
  const std::string example = TextOf(Sign::kMet);
  std::string text;  // pending_ without the signs
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t at = rest.find(kSeparator);
    text += rest.substr(0, at);
    if (at == std::string_view::npos) {
      rest = {};
      break;
    }
    rest.remove_prefix(at);
    const std::string_view sign = rest.substr(0, example.size());
    // Signs differ only in their letter, so the text before the letter is compared.
    const size_t letter = example.size() - kSignEnd.size() - 1;
    const bool may_be =
        std::string_view(example).substr(0, letter).starts_with(sign.substr(0, letter));
    if (may_be && sign.size() < example.size() && !all) break;
    if (may_be && sign.size() == example.size() && sign.ends_with(kSignEnd)) {
      signs_[static_cast<unsigned char>(sign[letter]) % signs_.size()] = true;
      rest.remove_prefix(example.size());
    } else {
      text += rest.front();
      rest.remove_prefix(1);
    }
  }
  std::string passed;
  std::string_view lines = text;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    if (end == std::string_view::npos && !all && MustBeComplete(lines)) break;
    const std::string_view line = lines.substr(0, end == std::string_view::npos ? end : end + 1);
    PassLine(line, passed);
    lines.remove_prefix(line.size());
  }
  if (Has(Sign::kMet)) passed.insert(0, std::exchange(held_, {}));
  if (all) passed += std::exchange(rule_, {});
  pending_ = std::string(lines) + std::string(rest);
  return passed;
}

bool SignReader::MustBeComplete(std::string_view beginning) const {
  // Before the ranks have met, each line may turn out to be one of Lockstep's own.
  return !Has(Sign::kMet) || in_page_ || !rule_.empty() || MayBeLostLine(beginning) ||
         beginning.find_first_not_of('-') == std::string_view::npos;
}

void SignReader::PassLine(std::string_view line, std::string& passed) {
  if (line.starts_with(kError)) has_error_ = true;
  if (const std::string machine = MachineInLostLine(line); !machine.empty()) {
    if (lost_.empty()) lost_ = machine;
  } else if (line.starts_with(kOurs)) {
    passed += line;
  } else if (!Has(Sign::kMet)) {
    Append(line, held_);
  } else if (in_page_) {
    Append(line, pages_);
    in_page_ = !IsRule(line);
  } else if (!rule_.empty() && std::ranges::any_of(kPages, [&](std::string_view words) {
               return line.starts_with(words);
             })) {
    Append(std::exchange(rule_, {}), pages_);
    Append(line, pages_);
    in_page_ = true;
  } else {
    passed += std::exchange(rule_, {});
    if (IsRule(line)) {
      rule_ = line;
    } else {
      passed += line;
    }
  }
}

Relay::Pipe Relay::MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw UsageError("no pipe: {}", std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Relay::Relay() : output_(MakePipe()), error_(MakePipe()), ended_(eventfd(0, EFD_CLOEXEC)) {
  if (ended_.get() < 0) throw UsageError("no event: {}", std::strerror(errno));
}

Relay::~Relay() { Finish(); }

void Relay::Begin() {
  output_.writing = {};
  error_.writing = {};
  output_thread_ = std::thread([this] {
    Pump(output_, [this](std::string_view piece) {
      const int error = WriteAll(STDOUT_FILENO, piece);
      if (error != EPIPE && output_error_ == 0) output_error_ = error;
    });
  });
  error_thread_ = std::thread([this] {
    Pump(error_, [this](std::string_view piece) { WriteAll(STDERR_FILENO, signs_.Add(piece)); });
    WriteAll(STDERR_FILENO, signs_.Finish());
  });
}

// Reads `pipe` and passes each piece to `take`, until the job has ended and the pipe is empty. Does not wait for the
// end of file, because processes that the job left behind may still have the pipe open.
template <typename Take>
void Relay::Pump(const Pipe& pipe, const Take& take) const {
  std::array<char, 16384> piece;
  while (true) {
    std::array<pollfd, 2> waited{pollfd{.fd = pipe.reading.get(), .events = POLLIN},
                                 pollfd{.fd = ended_.get(), .events = POLLIN}};
    if (poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
    if (waited[0].revents == 0) {
      if (waited[1].revents != 0) return;
      continue;
    }
    const ssize_t count = read(pipe.reading.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    take(std::string_view(piece.data(), static_cast<size_t>(count)));
  }
}

void Relay::Finish() {
  if (!output_thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(ended_.get(), &one, sizeof(one));
  output_thread_.join();
  error_thread_.join();
}

}  // namespace lockstep
