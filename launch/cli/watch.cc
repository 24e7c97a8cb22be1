// lockstep watch: what this machine's GPUs, cores and memory are doing, as it changes.
//
// Protocol on a terminal:
//   1. signals that end a process are held back, and are read from a descriptor like keys
//   2. the terminal's second screen shows the newest reading (observe/machine/machine_monitor.h) once a second; the
//      first screen stays as it is
//   3. at `q`, Ctrl-C or one of those signals the first screen and the terminal's settings come back
// With --once, and where standard output is no terminal, one reading is printed.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   there is no driver, or it does not answer -> a line that says so, and the host -> test_watch_without_a_driver,
//     test_watch_with_a_broken_driver
//   the driver is slow -> keys are answered meanwhile; the table follows -> test_watch_on_a_terminal
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/files/file_descriptor.h"
#include "base/host_name.h"
#include "base/say.h"
#include "launch/cli/commands.h"
#include "observe/machine/gpu_reader.h"
#include "observe/machine/host_reader.h"
#include "observe/machine/machine_monitor.h"
#include "observe/machine/machine_text.h"
#include "observe/machine/nvml.h"

namespace lockstep {
namespace {

constexpr double kPeriod = 1;  // seconds

// The line above a reading.
std::string DriverLine(const MachineReading& reading) {
  if (const std::string why = WhyNoNvml(); !why.empty()) return why;
  const std::string driver = NvmlDriver();
  return fmt::format("NVIDIA driver {}{}", driver.empty() ? "of unknown version" : driver,
                     reading.gpus.empty() ? ", which knows no GPU" : "");
}

std::string TextOf(const MachineReading& reading) {
  return DriverLine(reading) + "\n" +
         MachineTable(reading, [](int pid) { return NameProcess(pid, "/proc"); });
}

// What rates and the cores' use are counted over is a period.
void PrintOnce() {
  HostReader host;
  GpuReader gpus(std::nullopt);
  gpus.Read({});
  std::this_thread::sleep_for(std::chrono::duration<double>(kPeriod));
  const MachineReading reading{
      .host = HostName(), .host_reading = host.Read(), .gpus = gpus.Read({})};
  Print("{}", TextOf(reading));
}

// The terminal of standard input and output, on which keys come one by one and a second screen is shown.
class Screen {
 public:
  Screen() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      has_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    // The second screen, without a cursor, which cuts lines that are too long.
    PrintControl("\033[?1049h\033[?25l\033[?7l");
  }
  ~Screen() {
    PrintControl("\033[?7h\033[?25h\033[?1049l");
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool has_keys() const { return has_keys_; }

  // As many of the lines as there are rows.
  static void Show(const std::string& text) {
    winsize size{};
    constexpr int kUsualRows = 24;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    const int rows = is_known ? size.ws_row : kUsualRows;
    std::string drawn = "\033[H";  // to the first row
    size_t at = 0;
    for (int row = 0; row < rows && at < text.size(); ++row) {
      const size_t end = text.find('\n', at);
      drawn += (row == 0 ? "" : "\r\n") + Printable(text.substr(at, end - at)) + "\033[K";
      at = end + 1;
    }
    PrintControl(drawn + "\033[J");
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

// Signals that would end this process without giving the terminal back.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&held_, signal);
    pthread_sigmask(SIG_BLOCK, &held_, nullptr);
    descriptor_.emplace(signalfd(-1, &held_, SFD_CLOEXEC));
  }

  int descriptor() const { return descriptor_->get(); }

 private:
  sigset_t held_{};
  std::optional<FileDescriptor> descriptor_;
};

void Watch() {
  const HeldSignals signals;  // before the monitor's thread, which must not take them
  MachineMonitor monitor(std::nullopt, kPeriod);
  const Screen screen;
  Screen::Show("reading; q ends");
  while (OutputError() == 0) {
    std::array<pollfd, 2> awaited{
        pollfd{.fd = signals.descriptor(), .events = POLLIN},
        pollfd{.fd = screen.has_keys() ? STDIN_FILENO : -1, .events = POLLIN}};
    constexpr int kLookMs = 100;  // between two looks for a reading
    if (poll(awaited.data(), awaited.size(), kLookMs) < 0) continue;
    if (awaited[0].revents != 0) return;
    char key = 0;
    if (awaited[1].revents != 0 && (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q')) return;
    const std::unique_ptr<MachineReading> reading = monitor.Take();
    if (reading != nullptr) Screen::Show(TextOf(*reading));
  }
}

class WatchCommand final : public LocalCommand {
 public:
  explicit WatchCommand(CLI::App& app)
      : LocalCommand(app, "watch", "what this machine's GPUs, cores and memory are doing") {
    options().Add("--once", once_, "print it once, as where standard output is no terminal");
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    if (once_ || isatty(STDOUT_FILENO) == 0) {
      PrintOnce();
    } else {
      Watch();
    }
    return ExitStatus::kDone;
  }

  bool once_ = false;
};

}  // namespace

std::unique_ptr<Command> NewWatchCommand(CLI::App& app) {
  return std::make_unique<WatchCommand>(app);
}

}  // namespace lockstep
