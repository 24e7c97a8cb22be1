// lockstep flight: prints the last collectives that each rank of a run made with the others.
#include "base/say.h"
#include "comm/watch/flight_story.h"
#include "launch/cli/command/commands.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

class FlightCommand final : public LocalCommand {
 public:
  explicit FlightCommand(CLI::App& app)
      : LocalCommand(app, "flight", "what each rank of a run last exchanged with the others") {
    options().Add("RUN", run_dir_, "run folder").Required();
    options().Add("--last", last_, "collectives to print").Within(1, 4096).ShowDefault();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    RefuseFolds(run_dir_);
    const Flights flights = ReadFlights(run_dir_);
    for (const std::string& why : flights.damaged) Warn(why);
    Print("{}", Story(flights.read, last_));
    return ExitStatus::kDone;
  }

  std::string run_dir_;
  int last_ = 20;
};

}  // namespace

std::unique_ptr<Command> NewFlightCommand(CLI::App& app) {
  return std::make_unique<FlightCommand>(app);
}

}  // namespace lockstep
