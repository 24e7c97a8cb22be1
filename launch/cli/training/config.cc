// lockstep config: prints a config with the value of every field, or a template for a config.
#include "config/config.h"

#include "base/say.h"
#include "config/config_template.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"

namespace lockstep {
namespace {

class ConfigCommand final : public LocalCommand {
 public:
  explicit ConfigCommand(CLI::App& app)
      : LocalCommand(app, "config", "print a config with every field, or a commented template") {
    config_.AddFile(options());
    options().Add("--template", template_, "print every field at its default, with comments");
    config_.AddSet(options());
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    if (template_ == !config_.path.empty()) {
      throw UsageError("config: give a CONFIG or --template");
    }
    Print("{}", template_ ? ConfigTemplate() : PrintConfig(config_.Load()));
    return ExitStatus::kDone;
  }

  ConfigOptions config_;
  bool template_ = false;
};

}  // namespace

std::unique_ptr<Command> NewConfigCommand(CLI::App& app) {
  return std::make_unique<ConfigCommand>(app);
}

}  // namespace lockstep
