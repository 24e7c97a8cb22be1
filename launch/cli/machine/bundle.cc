// lockstep bundle: packs this program into one archive, or into a wheel.
#include "launch/bundle/bundle.h"

#include <vector>

#include "base/error.h"
#include "base/version.h"
#include "launch/cli/command/commands.h"

namespace lockstep {
namespace {

class BundleCommand final : public LocalCommand {
 public:
  explicit BundleCommand(CLI::App& app)
      : LocalCommand(app, "bundle",
                     "this program as one archive, for a machine that has but a torch wheel") {
    options().Add("ARCHIVE", archive_, "file to make: lockstep.tar.gz");
    options().Add("--wheel", wheel_folder_,
                  "folder to make a wheel in, which pip installs beside torch");
    options()
        .Add("--also", also_, "the same program, built with another torch, to be packed beside")
        .OneEach();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    if (archive_.empty() == wheel_folder_.empty()) {
      throw UsageError("bundle: give an ARCHIVE, or --wheel and a folder");
    }
    if (wheel_folder_.empty()) {
      MakeBundle(archive_, kVersion, also_);
    } else {
      MakeWheel(wheel_folder_, kVersion, also_);
    }
    return ExitStatus::kDone;
  }

  std::string archive_;
  std::string wheel_folder_;
  std::vector<std::string> also_;
};

}  // namespace

std::unique_ptr<Command> NewBundleCommand(CLI::App& app) {
  return std::make_unique<BundleCommand>(app);
}

}  // namespace lockstep
