// lockstep help: prints the same text as the option --help of a command, or the text about a topic.
//
// what can fail -> what the caller sees -> the test that shows it (tests/completion_test.py)
//   there is no such command or topic -> Error (kUsage) with what to do instead, or the nearest name
//     -> test_help_of_what_is_no_command
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/say.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/topics.h"

namespace lockstep {
namespace {

class HelpCommand final : public LocalCommand {
 public:
  explicit HelpCommand(CLI::App& app)
      : LocalCommand(app, "help", "how a command is used, with examples"), app_(app) {
    options().Add("COMMAND", words_, "a command, such as: train, or: bench step; or a topic");
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    if (const std::string text = words_.size() == 1 ? TextOfTopic(words_[0]) : ""; !text.empty()) {
      Print("{}", text);
      return ExitStatus::kDone;
    }
    const CLI::App& command = CommandOf(app_, words_);
    if (!words_.empty() && command.get_name() != words_.back()) {
      throw UsageError("{} has no commands of its own", command.get_name());
    }
    // App::help() is not used here, because it prints the help of the command that the command line names, which is
    // `help` itself.
    const std::string name =
        words_.empty() ? app_.get_name() : fmt::format("{}", fmt::join(words_, " "));
    Print("{}", app_.get_formatter()->make_help(&command, name, CLI::AppFormatMode::Normal));
    return ExitStatus::kDone;
  }

  const CLI::App& app_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> NewHelpCommand(CLI::App& app) {
  return std::make_unique<HelpCommand>(app);
}

}  // namespace lockstep
