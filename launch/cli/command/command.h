// Command: the base class of the commands of the command line. To add a command, write a file in a folder of launch/cli
// that defines New...Command(), add a line to commands.inc, add a unit for the file to the folder's BUILD file, and
// name this unit in the deps of the BUILD file's unit `commands`.
//
//   class HelloCommand final : public LocalCommand {
//    public:
//     explicit HelloCommand(CLI::App& app) : LocalCommand(app, "hello", "greet somebody") {
//       options().Add("NAME", name_, "whom").Required();
//     }
//
//    private:
//     ExitStatus RunHere(const Invocation&) override {
//       Print("hello {}\n", name_);
//       return ExitStatus::kDone;
//     }
//
//     std::string name_;
//   };
//
// A command that runs in this process alone derives from LocalCommand. A command that all ranks of a job run together,
// and that therefore accepts -n, derives from RankCommand (launch/cli/command/rank_command.h).
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "launch/cli/command/command_options.h"
#include "launch/job/start_job.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

// How the program was started.
struct Invocation {
  std::string program;             // the path that the user gave
  std::vector<std::string> words;  // all words of the command line after the program
  StartOptions start;              // the values of -n and similar options
  const Extensions& extensions;
};

class Command {
 public:
  // Adds the command `name` to `parent`. `what` is its line in the help. If `what` is empty, the help does not show the
  // command.
  Command(CLI::App& parent, const std::string& name, const std::string& what);
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // Returns whether the command line names this command. Call it after the command line was parsed.
  bool parsed() const;

  // Returns true if the command's output is its result, and false if the result is in a file and the output only tells
  // about it.
  virtual bool prints_result() const { return true; }

  // Returns the exit status. Throws Error.
  virtual int Run(const Invocation& invocation) = 0;

 protected:
  CommandOptions& options() { return options_; }
  const std::string& name() const { return name_; }  // the name as a user types it: "bench step"

 private:
  CLI::App& app_;
  CommandOptions options_;
  std::string name_;
};

// The base class of commands that run in this process alone.
class LocalCommand : public Command {
 public:
  using Command::Command;
  int Run(const Invocation& invocation) final;

 private:
  // Throws Error.
  virtual ExitStatus RunHere(const Invocation& invocation) = 0;
};

// Returns the command that the words of a command line name, such as "bench step"; `app` if there are no words. Skips
// words that begin with `-`, and ignores what follows the command. If a word stands where a command must be and names
// no command, throws Error (kUsage) with the most similar name.
const CLI::App& CommandOf(const CLI::App& app, const std::vector<std::string>& words);

// Returns the command `name` of `app`, to which the caller adds subcommands. Adds the command if it does not exist yet.
CLI::App& Group(CLI::App& app, const std::string& name, const std::string& what);

}  // namespace lockstep
