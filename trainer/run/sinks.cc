#include "trainer/run/sinks.h"

#include <memory>
#include <variant>

#include "observe/machine/machine_monitor.h"
#include "observe/sinks/log_sink.h"
#include "observe/sinks/terminal_sink.h"

namespace lockstep {
namespace {

// Emits the machine's newest reading behind each step that is told.
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

void AddRankSinks(RunFolder* folder, bool live, int rank, RunEvents& events) {
  if (folder == nullptr) {
    events.Add(NewRankWarningSink(rank));
    return;
  }
  events.Add(NewLogSink([folder](const nlohmann::ordered_json& line) { folder->Log(line); }));
  events.Add(NewTerminalSink(live));
}

}  // namespace

void AddSinks(const config::Observe& config, const std::optional<std::vector<GpuUser>>& gpu_users,
              RunFolder* folder, bool live, int rank, RunEvents& events) {
  AddRankSinks(folder, live, rank, events);
  // Behind the others, which have then seen the step.
  if (gpu_users && config.readings_every_s() > 0) {
    events.Add(std::make_unique<MachineReadings>(*gpu_users, config.readings_every_s(), events));
  }
}

}  // namespace lockstep
