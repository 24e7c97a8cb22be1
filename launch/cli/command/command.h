// Command: the base class of the commands of the command line. To add a command, choose a folder of launch/cli, write a
// file there that defines New...Command(), and add a line to commands.inc. In the folder's BUILD file, add a unit for
// the file, and name this unit in the deps of the unit `commands`.
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

struct Extensions;  // defined in trainer/run/extensions.h

// How the program was started.
struct Invocation {
  std::string program;             // the path that the user gave
  std::vector<std::string> words;  // all words of the command line after the program's name
  StartOptions start;              // the values of -n and similar options
  const Extensions& extensions;
};

class Command {
 public:
  // Adds the command `name` to `parent`. `what` describes the command in the help. If `what` is empty, the help does
  // not show the command.
  Command(CLI::App& parent, const std::string& name, const std::string& what);
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // Returns whether the command line names this command. Call it after the command line was parsed.
  bool parsed() const;

  // Returns true if the command prints its result. Returns false if the command writes its result to a file, and prints
  // only reports on its work.
  virtual bool prints_result() const { return true; }

  // Runs the command and returns the exit status. Throws Error.
  virtual int Run(const Invocation& invocation) = 0;

 protected:
  CommandOptions& options() { return options_; }
  const std::string& name() const { return name_; }  // as users type it: "bench step"

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
  // Does the command's work and returns the exit status. Throws Error.
  virtual ExitStatus RunHere(const Invocation& invocation) = 0;
};

// Returns the command, such as "bench step", that is named by the words of a command line; `app` if the words name no
// command. Skips words that begin with `-`, and ignores the words after the command's name. If a word in the place of a
// command's name is not such a name, throws Error (kUsage) with what to do instead (topics.h) or the most similar name.
const CLI::App& CommandOf(const CLI::App& app, const std::vector<std::string>& words);

// Returns the command `name` of `app`, to which the caller adds subcommands. Adds the command if it does not exist yet.
CLI::App& Group(CLI::App& app, const std::string& name, const std::string& what);

}  // namespace lockstep
