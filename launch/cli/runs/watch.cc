// lockstep watch: shows the load of this machine's GPUs, cores and memory, or the state of a run or of a
// cross-validation, in the terminal or (--page) in a browser.
//
// Protocol on a terminal:
//   1. The signals that end a process are blocked. The command waits for these signals, through a signalfd, and for
//      keys of the terminal.
//   2. The terminal's alternate screen shows once a second the newest reading (observe/machine/machine_monitor.h), or
//      the run (launch/cli/runs/run_view.h). The normal screen stays as it is.
//   3. At `q`, Ctrl-C or one of the signals of step 1, or if the run has ended, the normal screen and the terminal's
//      settings are restored. The state of the run is then printed on the normal screen.
// The reading or the run is printed only once in each of these cases: --once is given, standard output is no terminal,
// or the run has already ended.
//
// With --page a server (observe/page/page_server.h) shows one run or several to a browser, until a signal comes.
//
// what can fail -> what the caller sees -> the test that shows it
//   there is no NVIDIA driver, or the driver does not answer -> a line that says so, above the figures of cores and
//     memory
//     -> tests/machine_test.py, test_watch_without_a_driver, test_watch_with_a_broken_driver
//   the driver is slow -> keys work meanwhile; the table appears later
//     -> tests/machine_test.py, test_watch_on_a_terminal
//   RUN is no run folder -> Error (kUsage) -> tests/history_test.py, test_what_is_no_run
//   the log's last line is incomplete, or an older version wrote the log -> the view shows the figures that the log has
//     -> tests/history_test.py, test_a_log_that_is_cut_off, test_a_run_of_an_older_version
//   --page: a folder is no run folder and contains no run folders, or the port is in use -> Error (kUsage)
//     -> tests/page_test.py, test_what_has_no_page, test_a_port_that_is_taken
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files/file_descriptor.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/runs/run_view.h"
#include "observe/history/training_folder.h"
#include "observe/history/training_history.h"
#include "observe/machine/machine_monitor.h"
#include "observe/machine/machine_text.h"
#include "observe/machine/nvml.h"
#include "observe/page/page_server.h"

namespace lockstep {
namespace {

constexpr double kPeriod = 1;  // seconds

// Returns the line above a reading's table: the driver's version, or the reason why there is no driver.
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

// Prints one reading. This takes kPeriod seconds, because rates and the use of the cores are averages over kPeriod.
void PrintMachine() {
  HostReader host;
  GpuReader gpus(std::nullopt);
  gpus.Read({});
  std::this_thread::sleep_for(std::chrono::duration<double>(kPeriod));
  Print("{}", TextOf(ReadMachine(host, gpus, {})));
}

void PrintTraining(const TrainingHistory& training) {
  Print("{}", TrainingView(training, UnixSeconds()));
}

// The terminal of standard input and output. While an object exists, keys are read one by one without an echo, and the
// terminal shows its alternate screen.
class Screen {
 public:
  Screen() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      // Ctrl-Z is disabled, because it would stop this process and leave the shell with the alternate screen and
      // without an echo.
      keys.c_cc[VSUSP] = _POSIX_VDISABLE;
      has_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    // These control sequences switch to the alternate screen, hide the cursor, and cut off lines that are too long.
    PrintControl("\033[?1049h\033[?25l\033[?7l");
  }
  ~Screen() {
    PrintControl("\033[?7h\033[?25h\033[?1049l");
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool has_keys() const { return has_keys_; }

  // Shows the first lines of `text`, as many as the screen has rows.
  static void Show(const std::string& text) {
    winsize size{};
    constexpr int kUsualRows = 24;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    const int rows = is_known ? size.ws_row : kUsualRows;
    std::string drawn = "\033[H";  // moves the cursor to the first row
    size_t at = 0;
    for (int row = 0; row < rows && at < text.size(); ++row) {
      const size_t end = std::min(text.find('\n', at), text.size());
      drawn += (row == 0 ? "" : "\r\n") + Printable(text.substr(at, end - at)) + "\033[K";
      at = end + 1;
    }
    PrintControl(drawn + "\033[J");
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

// Blocks the signals that would end this process before the terminal is restored. They can be read from descriptor().
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

// Shows `first`, and then the texts that `next` returns, until the key `q` or a signal comes or `is_over` returns true.
// Shows nothing new if `next` returns no text.
void Show(const std::string& first, const std::function<std::optional<std::string>()>& next,
          const std::function<bool()>& is_over, const HeldSignals& signals) {
  const Screen screen;
  Screen::Show(first);
  while (OutputError() == 0 && !is_over()) {
    std::array<pollfd, 2> awaited{
        pollfd{.fd = signals.descriptor(), .events = POLLIN},
        pollfd{.fd = screen.has_keys() ? STDIN_FILENO : -1, .events = POLLIN}};
    constexpr int kLookMs = 100;  // the longest wait, in ms, between two calls of next()
    if (poll(awaited.data(), awaited.size(), kLookMs) < 0) continue;
    if (awaited[0].revents != 0) return;
    char key = 0;
    if (awaited[1].revents != 0 && (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q')) return;
    if (const std::optional<std::string> text = next()) Screen::Show(*text);
  }
}

void WatchMachine() {
  const HeldSignals signals;  // comes first, because the monitor's thread inherits the signal mask
  MachineMonitor monitor(std::nullopt, kPeriod);
  const auto next = [&]() -> std::optional<std::string> {
    const std::unique_ptr<MachineReading> reading = monitor.Take();
    if (reading == nullptr) return std::nullopt;
    return TextOf(*reading);
  };
  Show("reading; q ends", next, [] { return false; }, signals);
}

// Shows a run or a cross-validation until it has ended, and then prints its state. If it has failed or was killed, it
// is shown for twenty more seconds, because --restarts may start the job again.
void Watch(TrainingHistory& training) {
  constexpr double kRestartPeriod = 20;  // seconds
  const HeldSignals signals;
  double shown_at = SecondsSinceBoot();
  double trained_at = shown_at;
  const auto next = [&]() -> std::optional<std::string> {
    const double now = SecondsSinceBoot();
    if (now - shown_at < kPeriod) return std::nullopt;
    shown_at = now;
    training.Refresh();
    if (training.state() == RunState::kTraining) trained_at = now;
    return TrainingView(training, UnixSeconds());
  };
  const auto is_over = [&] {
    const RunState state = training.state();
    const bool may_go_on =
        state == RunState::kTraining || state == RunState::kFailed || state == RunState::kKilled;
    return !may_go_on || SecondsSinceBoot() - trained_at > kRestartPeriod;
  };
  Show(TrainingView(training, UnixSeconds()), next, is_over, signals);
  PrintTraining(training);
}

void WatchOnPage(const std::vector<std::string>& folders, const std::string& address, int port) {
  const HeldSignals signals;  // comes first, because the server's thread inherits the signal mask
  // The logs are read before the URL is printed, so that the first answer comes at once.
  auto data = std::make_unique<PageData>(RunFoldersFor(folders), /*live=*/true);
  const PageServer server(
      {.address = address, .port = port, .port_name = "--port", .address_name = "--bind"},
      [&] { return std::move(data); });
  Print("{}  (Ctrl-C ends it)\n", server.url());
  pollfd awaited{.fd = signals.descriptor(), .events = POLLIN};
  while (poll(&awaited, 1, /*timeout=*/-1) < 0) {
  }
}

class WatchCommand final : public LocalCommand {
 public:
  explicit WatchCommand(CLI::App& app)
      : LocalCommand(app, "watch", "what a run, or this machine's GPUs and cores, are doing") {
    options()
        .Add("RUN", folders_, "run folder; without it the machine is shown")
        .Take(0, kMostRuns);
    options().Add("--once", once_, "print it once, as if standard output were no terminal");
    options().Add("--page", page_, "show one or several runs, or all of a folder, to a browser");
    options()
        .Add("--port", port_, "port of the page; 0: one that is free")
        .Within(0, kMostPort)
        .ShowDefault();
    options()
        .Add("--bind", address_, "address of the page; beyond this machine its URL has a token")
        .ShowDefault();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    const bool once = once_ || isatty(STDOUT_FILENO) == 0;
    if (page_) {
      if (folders_.empty()) throw UsageError("--page: name run folders, or a folder of them");
      if (once_) throw UsageError("--once prints text: leave out --page");
      WatchOnPage(folders_, address_, port_);
    } else if (port_ != kPagePort || address_ != kThisMachine) {
      throw UsageError("--port and --bind belong to --page");
    } else if (folders_.size() > 1) {
      throw UsageError("{} runs: a terminal shows one: add --page, or see lockstep compare",
                       folders_.size());
    } else if (!folders_.empty()) {
      RequireTraining(folders_.front());
      TrainingHistory training(folders_.front());
      if (once || training.state() != RunState::kTraining) {
        PrintTraining(training);
      } else {
        Watch(training);
      }
    } else if (once) {
      PrintMachine();
    } else {
      WatchMachine();
    }
    return ExitStatus::kDone;
  }

  static constexpr int kPagePort = 9500;
  static constexpr int kMostPort = 65535;
  static constexpr const char* kThisMachine = "127.0.0.1";

  std::vector<std::string> folders_;
  bool once_ = false;
  bool page_ = false;
  int port_ = kPagePort;
  std::string address_ = kThisMachine;
};

}  // namespace

std::unique_ptr<Command> NewWatchCommand(CLI::App& app) {
  return std::make_unique<WatchCommand>(app);
}

}  // namespace lockstep
