// Command: the base class of the commands of the command line. A command is a file in this folder that defines
// New...Command(), and a line of commands.inc.
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
// A command that runs in this process alone is a LocalCommand. A command that the ranks of a job run together, so that
// it accepts -n, is a RankCommand (launch/cli/rank_command.h).
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "launch/cli/command_options.h"
#include "launch/job/start_job.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

// How the program was started.
struct Invocation {
  std::string program;             // the path that the user gave
  std::vector<std::string> words;  // all that came behind it
  StartOptions start;              // -n and the like
  const Extensions& extensions;
};

class Command {
 public:
  // Adds the command `name` to `parent`; `what`: its line in the help; empty: no user's command.
  Command(CLI::App& parent, const std::string& name, const std::string& what);
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // Once the command line is parsed: whether it is this command.
  bool parsed() const;

  // Whether what it prints is its result, or tells of one that lies elsewhere.
  virtual bool prints_result() const { return true; }

  // Returns the exit status. Throws Error.
  virtual int Run(const Invocation& invocation) = 0;

 protected:
  CommandOptions& options() { return options_; }
  const std::string& name() const { return name_; }  // as a user types it: "bench step"

 private:
  CLI::App& app_;
  CommandOptions options_;
  std::string name_;
};

// One that this process runs alone.
class LocalCommand : public Command {
 public:
  using Command::Command;
  int Run(const Invocation& invocation) final;

 private:
  // Throws Error.
  virtual ExitStatus RunHere(const Invocation& invocation) = 0;
};

// The command `name` of `app` that has commands of its own, which is added for the first of them.
CLI::App& Group(CLI::App& app, const std::string& name, const std::string& what);

}  // namespace lockstep
