// The commands `lockstep prepare images|shards|tokens`: their options, and running them.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace lockstep {

class PrepareCommand {
 public:
  // Adds the command to `app`.
  explicit PrepareCommand(CLI::App& app);
  ~PrepareCommand();

  // Once the command line is parsed: whether it is this command.
  bool parsed() const;

  // Throws Error (kUsage, kData).
  void Run();

 private:
  struct Line;
  std::unique_ptr<Line> line_;
};

}  // namespace lockstep
