#include "launch/main.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
#include "launch/job/start_job.h"
#include "launch/job/supervised_job.h"
#include "trainer/run/extensions.h"

namespace lockstep {
namespace {

void AddStartOptions(CommandOptions options, StartOptions& start) {
  options.Add("-n,--ranks", start.ranks, "start N ranks on this machine through mpirun")
      .Within(1, 4096);
  options.Add("--hosts", start.hosts,
              "node1:8,node2:8: start so many ranks on each of these machines, through ssh");
  options.Add("--elastic", start.elastic,
              "with --restarts: go on without machines and GPUs that have failed");
  options
      .Add("--restarts", start.restarts,
           "of train: start a job that failed again, so often, from its newest checkpoint")
      .Within(0, 1'000'000);
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

// Returns the error message for a word of the command line that the command does not know. If there are several unknown
// words, the message is about the first that begins with `-`, or, if none begins with `-`, about the first.
std::string NotExpected(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App& command = CommandOf(app, WithoutStartOptions(words));
  std::vector<std::string> options;
  for (const CLI::App* level : {&command, &app}) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  }
  const auto has = [&](const std::string& option) {
    return std::ranges::find(options, option) != options.end();
  };
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  const auto dashed = std::ranges::find_if(left, [](auto& word) { return word.starts_with('-'); });
  const std::string word = dashed != left.end() ? *dashed : left.empty() ? "" : left.front();
  std::string cure = DidYouMean(word, options);
  const bool may_be_field = dashed != left.end() || word.find('=') != std::string::npos;
  if (may_be_field && has("--set")) {
    const std::string field = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    cure += fmt::format("; a field of the config is set with --set {}",
                        field.find('=') == std::string::npos ? field + "=VALUE" : field);
  } else if (cure.empty() && dashed == left.end() && has("--input")) {
    cure = fmt::format("; files are named with --input {}", word);
  }
  return fmt::format("lockstep {}: \"{}\" is not expected{} (lockstep {} --help shows how)",
                     command.get_name(), word, cure, command.get_name());
}

// Runs the command line and returns the exit status. If the command line can be parsed, sets `prints_result` to
// Command::prints_result() of its command.
int RunCommandLine(int argc, char** argv, const Extensions& extensions, bool& prints_result) {
  Invocation invocation{.words{argv + 1, argv + argc}, .extensions = extensions};
  CLI::App app("Lockstep trains PyTorch-style models on every GPU that mpirun gives it.",
               "lockstep");
  app.require_subcommand(1);
  app.fallthrough();
  AddStartOptions(CommandOptions(app), invocation.start);
  const std::vector<std::unique_ptr<Command>> commands = NewCommands(app);
  try {
    CommandOf(app, WithoutStartOptions(invocation.words));
    app.parse(argc, argv);
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
  } catch (const CLI::ExtrasError&) {
    PrintError(NotExpected(app, invocation.words));
    return static_cast<int>(ExitStatus::kUsage);
  } catch (const CLI::ParseError& error) {
    PrintError(fmt::format("{} (lockstep --help shows how)", error.what()));
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
