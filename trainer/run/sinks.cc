#include "trainer/run/sinks.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <variant>

#include "observe/machine/machine_monitor.h"
#include "observe/page/page_sink.h"
#include "observe/sinks/alert_sink.h"
#include "observe/sinks/log_sink.h"
#include "observe/sinks/prometheus_sink.h"
#include "observe/sinks/tensorboard_sink.h"
#include "observe/sinks/terminal_sink.h"

namespace lockstep {
namespace {

// Returns the name of the optimizer's class in PyTorch, if PyTorch has the optimizer, otherwise the config's name.
std::string ClassOf(config::Optimizer::Type type) {
  switch (type) {
    case config::Optimizer::ADAM:
      return "Adam";
    case config::Optimizer::ADAMW:
      return "AdamW";
    default:
      return config::Optimizer::Type_Name(type);
  }
}

// Emits the newest reading of the machine after each logged step (log.every_steps), if there is a new one. Of several
// readings since the previous logged step, only the newest is emitted.
class MachineReadings final : public EventSink {
 public:
  MachineReadings(const std::vector<GpuUser>& gpus, double every_s, RunEvents& events)
      : monitor_(gpus, every_s), events_(events) {}

  void On(const RunEvent& event) override {
    if (!std::holds_alternative<StepDone>(event)) return;
    const std::unique_ptr<MachineReading> reading = monitor_.Take();
    if (reading != nullptr) events_.Emit(*reading);
  }

 private:
  MachineMonitor monitor_;
  RunEvents& events_;
};

AlertOptions AlertOptionsOf(const config::Config& config) {
  return {.command = config.observe().on_alert(),
          .run_dir = config.run_dir(),
          .stall_s = config.observe().stall_s(),
          .alert_below = config.observe().alert_below()};
}

void AddRankSinks(const config::Config& config, RunFolder* folder, bool live, int rank,
                  RunEvents& events) {
  const config::Observe& observe = config.observe();
  if (observe.prometheus_port() > 0 || !observe.prometheus_file().empty()) {
    events.Add(NewPrometheusSink({.address = observe.prometheus_address(),
                                  .port = observe.prometheus_port(),
                                  .file = observe.prometheus_file(),
                                  .rank = rank,
                                  .readings_every_s = observe.readings_every_s()},
                                 events.steps()));
  }
  if (folder == nullptr) {
    events.Add(NewRankWarningSink(rank));
    return;
  }
  events.Add(NewLogSink([folder](const nlohmann::ordered_json& line) { folder->Log(line); }));
  events.Add(NewTerminalSink(live));
  if (observe.tensorboard()) {
    events.Add(NewTensorBoardSink(folder->path(), ClassOf(config.optimizer().type())));
  }
  if (observe.page_port() > 0) {
    events.Add(NewPageSink(folder->path(), observe.page_address(), observe.page_port()));
  }
  if (!observe.on_alert().empty()) {
    events.Add(NewAlertSink(AlertOptionsOf(config), events.steps()));
  }
}

}  // namespace

void AddSinks(const config::Config& config, const std::optional<std::vector<GpuUser>>& gpu_users,
              RunFolder* folder, bool live, const World& world, RunEvents& events) {
  AddRankSinks(config, folder, live, world.rank(), events);
  if (world.watchdog != nullptr && !config.observe().on_alert().empty()) {
    world.watchdog->SetOnFailure(
        [alert = AlertOptionsOf(config)](int status, const std::string& why) {
          AlertOfLostRank(alert, status, why);
        });
  }
  // MachineReadings is added last, so that all other sinks get the event of a step before they get the machine's
  // reading.
  const double every_s = config.observe().readings_every_s();
  if (gpu_users && every_s > 0) {
    events.Add(std::make_unique<MachineReadings>(*gpu_users, every_s, events));
  }
}

bool HistogramsAreDue(const config::Observe& observe, int64_t step) {
  return observe.tensorboard() && observe.histograms_every_steps() > 0 &&
         step % observe.histograms_every_steps() == 0;
}

}  // namespace lockstep
