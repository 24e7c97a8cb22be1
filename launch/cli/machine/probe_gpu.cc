// lockstep probe-gpu: checks whether the first visible GPU works. With --elastic the supervisor of a job runs this
// command for each GPU (launch/job/elastic.h). The command is not meant for users.
#include "launch/cli/command/commands.h"
#include "launch/job/early_signals.h"
#include "launch/job/elastic.h"

namespace lockstep {
namespace {

class ProbeGpuCommand final : public Command {
 public:
  explicit ProbeGpuCommand(CLI::App& app) : Command(app, kProbeGpu, "") {}

  int Run(const Invocation&) override {
    LetEarlySignalsCome();
    return ProbeGpu();
  }
};

}  // namespace

std::unique_ptr<Command> NewProbeGpuCommand(CLI::App& app) {
  return std::make_unique<ProbeGpuCommand>(app);
}

}  // namespace lockstep
