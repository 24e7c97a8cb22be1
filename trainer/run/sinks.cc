#include "trainer/run/sinks.h"

#include <string>

#include "observe/sinks/alert_sink.h"
#include "observe/sinks/log_sink.h"
#include "observe/sinks/prometheus_sink.h"
#include "observe/sinks/tensorboard_sink.h"
#include "observe/sinks/terminal_sink.h"

namespace lockstep {
namespace {

// As PyTorch spells it.
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

}  // namespace

void AddSinks(const config::Config& config, RunFolder* folder, bool live, int rank,
              RunEvents& events) {
  const config::Observe& observe = config.observe();
  if (observe.prometheus_port() > 0 || !observe.prometheus_file().empty()) {
    events.Add(NewPrometheusSink({.address = observe.prometheus_address(),
                                  .port = observe.prometheus_port(),
                                  .file = observe.prometheus_file(),
                                  .rank = rank},
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
  if (!observe.on_alert().empty()) {
    events.Add(NewAlertSink({.command = observe.on_alert(),
                             .run_dir = folder->path(),
                             .stall_s = observe.stall_s(),
                             .alert_below = observe.alert_below()},
                            events.steps()));
  }
}

}  // namespace lockstep
