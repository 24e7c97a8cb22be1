#include "observe/sinks/log_sink.h"

#include <utility>

#include "base/clock.h"
#include "base/round.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Those of the validation samples: no name is one of training's.
void AddMetrics(const std::vector<Metric>& metrics, Json& line) {
  for (const Metric& metric : metrics) line["val_" + metric.name] = metric.value;
}

Json LineOf(const RunStarted& event) {
  Json line{{"event", "start"},
            {"restarts", event.restarts},
            {"version", event.version},
            {"world_size", event.ranks},
            {"device", event.on_gpu ? "cuda" : "cpu"},
            {"samples", event.samples},
            {"validation_samples", event.validation_samples},
            {"steps", event.steps},
            {"precision", event.precision},
            {"parameters", event.parameters},
            {"loader_threads", event.loader_threads}};
  if (event.decodes_on_gpu) line["decode"] = *event.decodes_on_gpu ? "GPU" : "CPU";
  return line;
}

Json LineOf(const RunResumed& event) {
  Json line{{"event", "resume"},
            {"step", event.step},
            {"checkpoint", event.checkpoint},
            {"ranks", event.ranks}};
  if (event.is_of_another_run) line["differences"] = event.differences;
  return line;
}

Json LineOf(const StepDone& event) {
  const StepReport& report = event.report;
  Json line{{"event", "step"},
            {"step", report.step},
            {"epoch", report.epoch},
            {"loss", report.loss()},
            {"lr", report.lr},
            {"samples_per_s", Round(report.samples_per_s, 0)},
            {"data_wait", Round(report.data_wait, 3)},
            {"loader_threads", report.loader_threads},
            {"grad_norm", report.figures[ops::kGradNorm]}};
  if (report.seconds_left >= 0) line["left_s"] = Round(report.seconds_left, 1);
  if (report.has_loss_scale) line["loss_scale"] = report.figures[ops::kScale];
  if (report.figures[ops::kSkipped] > 0) line["skipped_steps"] = report.figures[ops::kSkipped];
  return line;
}

Json LineOf(const RunsWithoutGraph& event) {
  return {{"event", "no_graph"}, {"reason", event.reason}};
}

Json LineOf(const MemoryPeaks& event) {
  Json line{{"event", "memory"}};
  for (const Phase phase : kPhases) {
    line[std::string(NameOf(phase)) + "_bytes"] = event.bytes[static_cast<size_t>(phase)];
  }
  return line;
}

Json LineOf(const OutOfMemory& event) {
  return {{"event", "out_of_memory"},
          {"step", event.step},
          {"micro_batch", event.micro_batch},
          {"accumulation", event.accumulation}};
}

Json LineOf(const CheckpointsLeftDevice& event) {
  return {{"event", "checkpoints_left_device"}, {"step", event.step}};
}

Json LineOf(const BadSample& event) { return {{"event", "bad_sample"}, {"reason", event.reason}}; }

Json LineOf(const EpochDone& event) {
  return {{"event", "epoch"},
          {"step", event.step},
          {"epoch", event.epoch},
          {"train_loss", event.loss},
          {"seconds", Round(event.seconds, 3)},
          {"samples_per_s", Round(event.samples_per_s, 0)}};
}

Json LineOf(const Evaluated& event) {
  Json line{{"event", "eval"}, {"step", event.step}, {"epoch", event.epoch}};
  AddMetrics(event.metrics, line);
  return line;
}

Json LineOf(const CheckpointSaved& event) {
  return {{"event", "checkpoint"},
          {"step", event.step},
          {"stall_ms", Round(1e3 * event.stall_s, 2)},
          {"seconds", Round(event.seconds, 3)},
          {"bytes", event.bytes}};
}

Json LineOf(const CheckpointLate& event) {
  return {{"event", "checkpoint_late"}, {"step", event.step}};
}

Json LineOf(const CheckpointFailed& event) {
  return {{"event", "checkpoint_failed"}, {"step", event.step}, {"reason", event.reason}};
}

Json LineOf(const RunWarning& event) { return {{"event", "warning"}, {"reason", event.reason}}; }

Json LineOf(const RunStopped& event) {
  return {{"event", "stopped"}, {"step", event.step}, {"epoch", event.epoch}, {"why", event.why}};
}

Json LineOf(const RunFailed& event) {
  return {{"event", "failed"},
          {"step", event.step},
          {"status", event.status},
          {"reason", event.reason}};
}

Json LineOf(const MachineReading&) { return {{"event", "machine"}}; }

Json LineOf(const SecondsReport& event) {
  Json lost;
  for (const Loss loss : kLosses) {
    lost[std::string(NameOf(loss))] = Round(event.lost_s[static_cast<size_t>(loss)], 3);
  }
  return {{"event", "seconds"},
          {"step", event.step},
          {"steps", event.steps},
          {"wall_s", Round(event.wall_s, 3)},
          {"ideal_s", Round(event.ideal_s, 3)},
          {"lost_s", std::move(lost)},
          {"verdict", event.verdict},
          {"remedy", event.remedy}};
}

Json LineOf(const RunDone& event) {
  Json line{{"event", "done"}, {"step", event.step}, {"epoch", event.epoch}};
  AddMetrics(event.metrics, line);
  line.update({{"first_step_s", Round(event.first_step_s, 3)},
               {"samples_per_s", Round(event.samples_per_s, 0)},
               {"total_s", Round(event.total_s, 3)},
               {"data_wait", Round(event.data_wait, 4)}});
  return line;
}

class LogSink final : public EventSink {
 public:
  explicit LogSink(std::function<void(const Json&)> write) : write_(std::move(write)) {}

  void On(const RunEvent& event) override {
    const Json line = std::visit([](const auto& kind) { return LineOf(kind); }, event);
    Json timed{{"event", line.at("event")}, {"time", Round(UnixSeconds(), 3)}};
    timed.update(line);
    write_(timed);
  }

 private:
  std::function<void(const Json&)> write_;
};

}  // namespace

std::unique_ptr<EventSink> NewLogSink(std::function<void(const Json&)> write) {
  return std::make_unique<LogSink>(std::move(write));
}

}  // namespace lockstep
