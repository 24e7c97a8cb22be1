// lockstep version: prints the versions of this program, LibTorch and NCCL.
#include "base/version.h"

#include <nccl.h>
#include <torch/version.h>

#include "base/say.h"
#include "launch/cli/command/commands.h"

namespace lockstep {
namespace {

class VersionCommand final : public LocalCommand {
 public:
  explicit VersionCommand(CLI::App& app)
      : LocalCommand(app, "version", "print the version and those of what it stands on") {}

 private:
  ExitStatus RunHere(const Invocation&) override {
    Print("lockstep {} (LibTorch {}, NCCL {}.{}.{})\n", kVersion, TORCH_VERSION, NCCL_MAJOR,
          NCCL_MINOR, NCCL_PATCH);
    return ExitStatus::kDone;
  }
};

}  // namespace

std::unique_ptr<Command> NewVersionCommand(CLI::App& app) {
  return std::make_unique<VersionCommand>(app);
}

}  // namespace lockstep
