// The command `lockstep slurm`: its options, and running it.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

class SlurmCommand {
 public:
  // Adds the command to `app`.
  explicit SlurmCommand(CLI::App& app);
  ~SlurmCommand();

  // Once the command line is parsed: whether it is this command.
  bool parsed() const;

  // Prints a job script that runs `program`. Throws Error (kUsage).
  void Run(const std::string& program);

 private:
  struct Line;
  std::unique_ptr<Line> line_;
};

}  // namespace lockstep
