// lockstep bundle: this program as one archive.
#include "launch/bundle/bundle.h"

#include "launch/cli/commands.h"
#include "launch/version.h"

namespace lockstep {
namespace {

class BundleCommand final : public LocalCommand {
 public:
  explicit BundleCommand(CLI::App& app)
      : LocalCommand(app, "bundle",
                     "this program as one archive, for a machine that has but a torch wheel") {
    options().Add("ARCHIVE", archive_, "file to make: lockstep.tar.gz").Required();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    MakeBundle(archive_, kVersion);
    return ExitStatus::kDone;
  }

  std::string archive_;
};

}  // namespace

std::unique_ptr<Command> NewBundleCommand(CLI::App& app) {
  return std::make_unique<BundleCommand>(app);
}

}  // namespace lockstep
