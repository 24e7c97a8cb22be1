#include "launch/main.h"

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "base/say.h"
#include "comm/together.h"
#include "launch/cli/command/command.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/topics.h"
#include "launch/job/early_signals.h"
#include "launch/job/hosts.h"
#include "launch/job/over_ssh.h"
#include "launch/job/start_job.h"
#include "launch/job/supervised_job.h"
#include "trainer/run/extensions.h"

namespace lockstep {
namespace {

void AddStartOptions(CommandOptions options, StartOptions& start) {
  options.Add("-n,--ranks", start.ranks, "start N ranks on this machine through mpirun")
      .Within(1, 4096);
  options.Add("--hosts", start.hosts,
              "node1:8,node2:8, or @FILE (a host file of mpirun): start so many ranks on each of "
              "these machines, through ssh");
  options.Add("--elastic", start.elastic,
              "with --restarts: go on without machines and GPUs that have failed");
  options
      .Add("--restarts", start.restarts,
           "of train: start a job that failed again, so often, from its newest checkpoint")
      .Within(0, 1'000'000);
}

// Sets HOME if it is not set, as in a service or a container: to the home folder of the process's user, or to `/` if the
// system does not know the user. The mpirun and MPI of Open MPI 5 do not start without HOME.
void SetHome() {
  if (std::getenv("HOME") != nullptr) return;
  const passwd* const user = getpwuid(geteuid());
  setenv("HOME", user != nullptr ? user->pw_dir : "/", /*overwrite=*/1);
}

// Returns the absolute path of this program. `name` is the word with which the user started the program. The target of
// /proc/self/exe is used only if `name` has no slash: in that target symbolic links, such as Bazel's, are resolved, so
// the path is harder to read.
std::string ProgramPath(const char* name) {
  if (std::string_view(name).find('/') == std::string_view::npos) {
    return std::filesystem::read_symlink("/proc/self/exe");
  }
  return std::filesystem::absolute(name);
}

// The command that a command line names, and the words after the program's name.
class CommandLine {
 public:
  CommandLine(const CLI::App& app, const std::vector<std::string>& words)
      : app_(app), words_(words), command_(CommandOf(app, WithoutStartOptions(words))) {
    for (const CLI::App* level : {&command_, &app_}) {
      for (const CLI::Option* option : level->get_options()) {
        for (const std::string& name : option->get_lnames()) options_.push_back("--" + name);
      }
    }
  }

  // Returns the error message for a command line that CLI11 has not parsed for the reason `error`.
  std::string MessageOf(const CLI::ParseError& error) const {
    // CLI11 takes the value of an unknown option for an argument, and would complain about the number of arguments.
    for (const std::string& word : words_) {
      if (IsUnknownOption(word)) return NotExpected(word);
    }
    const std::vector<std::string> left = app_.remaining(/*recurse=*/true);
    const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (is_extra && !left.empty()) return NotExpected(left.front());
    if (&command_ == &app_) return Message("name a command");
    if (!command_.get_subcommands([](const CLI::App*) { return true; }).empty()) {
      return Message("name one of its commands");
    }
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
      const std::string cure =
          Misses("--output") ? "; the file to write is named with --output" : "";
      return Message(error.what() + cure);
    }
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
      const std::string missing = error.what();
      const CLI::Option* const option =
          command_.get_option_no_throw(missing.substr(0, missing.find(' ')));
      if (option != nullptr) {
        return Message(fmt::format("{}: {}", missing, option->get_description()));
      }
    }
    return Message(error.what());
  }

 private:
  bool Has(const std::string& option) const {
    return std::ranges::find(options_, option) != options_.end();
  }

  bool Misses(const std::string& option) const {
    return Has(option) && std::ranges::none_of(words_, [&](const std::string& word) {
             return word.starts_with(option);
           });
  }

  // Returns whether a word has the form of an option that neither the command nor the program has.
  bool IsUnknownOption(const std::string& word) const {
    const bool is_long = word.starts_with("--") && word.size() > 2;
    const bool is_short = !is_long && word.starts_with('-') && word.size() > 1 &&
                          std::isalpha(static_cast<unsigned char>(word[1])) != 0;
    if (!is_long && !is_short) return false;
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    return command_.get_option_no_throw(name) == nullptr &&
           app_.get_option_no_throw(name) == nullptr;
  }

  // Returns the word after `word`, or what follows its `=`.
  std::string ValueOf(const std::string& word) const {
    if (const size_t equals = word.find('='); equals != word.npos) return word.substr(equals + 1);
    const auto next = std::next(std::ranges::find(words_, word));
    return next == words_.end() ? "" : *next;
  }

  // Returns `; did you mean "--x"?` for the option with the most similar name; an empty text if none is similar. The
  // dashes, which all options have, do not count.
  std::string NearestOption(const std::string& word, const std::string& name) const {
    std::vector<std::string> names;
    for (const std::string& option : options_) names.push_back(option.substr(2));
    const std::string nearest = word.starts_with('-') ? NearestName(name, names) : "";
    return nearest.empty() ? "" : fmt::format("; did you mean \"--{}\"?", nearest);
  }

  // Returns the error message for a word that the command does not know.
  std::string NotExpected(const std::string& word) const {
    const bool is_option = word.starts_with('-');
    const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    const std::string name = bare.substr(0, bare.find('='));
    const std::string field = is_option ? FieldOfOption(name) : "";
    const std::string answer = is_option ? AnswerToOption(name, ValueOf(word)) : "";
    std::string cure = field.empty() ? NearestOption(word, name) : "";
    if (!answer.empty()) {
      cure = "; " + answer;
    } else if ((is_option || bare.size() > name.size()) && Has("--set")) {
      const std::string value = bare.size() > name.size() ? bare.substr(name.size() + 1) : "VALUE";
      cure += fmt::format("; a field of the config is set with --set {}={}",
                          field.empty() ? name : field, value);
    } else if (cure.empty() && !is_option && Has("--input")) {
      cure = fmt::format("; files are named with --input {}", word);
    }
    return Message(fmt::format("\"{}\" is not expected{}", word, cure));
  }

  // Returns a message that begins with the command's name and ends with where its help is.
  std::string Message(const std::string& text) const {
    std::string name;
    for (const CLI::App* level = &command_; level != &app_; level = level->get_parent()) {
      name = " " + level->get_name() + name;
    }
    return fmt::format("lockstep{}: {} (lockstep{} --help shows how)", name, text, name);
  }

  const CLI::App& app_;
  const std::vector<std::string>& words_;
  const CLI::App& command_;
  std::vector<std::string> options_;
};

// Runs the command line and returns the exit status. If the command line can be parsed, sets `prints_result` to
// Command::prints_result() of its command.
int RunCommandLine(int argc, char** argv, const Extensions& extensions, bool& prints_result) {
  Invocation invocation{.words{argv + 1, argv + argc}, .extensions = extensions};
  CLI::App app("Lockstep trains PyTorch-style models on every GPU that mpirun gives it.",
               "lockstep");
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(ListOfTopics());
  AddStartOptions(CommandOptions(app), invocation.start);
  const std::vector<std::unique_ptr<Command>> commands = NewCommands(app);
  try {
    // The other words of this command are those of an ssh command, with ssh's options.
    if (argc > 2 && argv[1] == std::string_view(kOverSsh)) {
      LetEarlySignalsCome();
      return RunOverSsh({argv + 2, argv + argc});
    }
    CommandOf(app, WithoutStartOptions(invocation.words));
    app.parse(argc, argv);
    invocation.start.hosts = HostsOf(invocation.start.hosts);
    invocation.program = ProgramPath(argv[0]);
    for (const std::unique_ptr<Command>& command : commands) {
      if (!command->parsed()) continue;
      prints_result = command->prints_result();
      return command->Run(invocation);
    }
    throw BugError("the command line names no command");
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> asked = app.get_subcommands();
    Print("{}", (asked.empty() ? &app : asked.front())->help());
    return static_cast<int>(ExitStatus::kDone);
  } catch (const CLI::ParseError& error) {
    PrintError(CommandLine(app, invocation.words).MessageOf(error));
    return static_cast<int>(ExitStatus::kUsage);
  } catch (const std::exception& exception) {
    const Error error = ErrorOf(exception);
    PrintError(error.what());
    return static_cast<int>(error.status());
  }
}

}  // namespace

int Main(int argc, char** argv, Models models, Datasets datasets) {
  SecureStandardStreams();
  SetHome();
  bool prints_result = false;
  const int status = RunCommandLine(
      argc, argv, {.models = std::move(models), .datasets = std::move(datasets)}, prints_result);
  if (status != 0 || !prints_result || OutputError() == 0) return status;
  const Error lost = LostOutput(OutputError());
  PrintError(lost.what());
  return static_cast<int>(lost.status());
}

void End(int status) {
  for (const char* tools : {"LD_PRELOAD", "CUDA_INJECTION64_PATH"}) {
    if (std::getenv(tools) != nullptr) std::exit(status);
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace lockstep
