#include "observe/sinks/log_sink.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/round.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Adds the metrics of the validation samples to `line`. The names of these metrics begin with val_, and no name of a
// training figure begins with val_.
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

Json ObjectOf(const std::vector<MemoryPart>& parts) {
  Json object = Json::object();
  for (const MemoryPart& part : parts) object[part.name] = part.bytes;
  return object;
}

Json LineOf(const MemoryReport& event) {
  Json line{{"event", event.is_foretold ? "memory_foretold" : "memory"},
            {"step", event.step},
            {"device", event.on_gpu ? "cuda" : "cpu"},
            {"peak_bytes", event.peak_bytes}};
  if (event.on_gpu) {
    line.update({{"reserved_bytes", event.reserved_bytes}, {"device_bytes", event.device_bytes}});
  }
  if (event.foretold_bytes >= 0) line["foretold_bytes"] = event.foretold_bytes;
  line.update({{"owners", ObjectOf(event.owners)},
               {"phases", ObjectOf(event.phases)},
               {"blocks", ObjectOf(event.blocks)}});
  return line;
}

Json LineOf(const MicroBatchChosen& event) {
  return {{"event", "micro_batch"},
          {"step", event.step},
          {"micro_batch", event.micro_batch},
          {"accumulation", event.accumulation},
          {"why", event.why}};
}

Json LineOf(const KernelsGenerated& event) {
  return {{"event", "kernels"},
          {"compiled", event.compiled},
          {"kept", event.kept},
          {"compiling_s", Round(event.compiling_s, 3)},
          {"waited_s", Round(event.waited_s, 3)}};
}

Json LineOf(const OutOfMemory& event) {
  Json line{{"event", "out_of_memory"},
            {"step", event.step},
            {"micro_batch", event.micro_batch},
            {"accumulation", event.accumulation}};
  if (event.failed) {
    const AllocationFailure& failure = event.failed->failure;
    line.update({{"rank", event.failed->rank},
                 {"requested_bytes", failure.requested_bytes},
                 {"allocated_bytes", failure.allocated_bytes},
                 {"reserved_bytes", failure.reserved_bytes},
                 {"free_bytes", failure.free_bytes},
                 {"usable_bytes", failure.usable_bytes},
                 {"largest_usable_bytes", failure.largest_usable_bytes},
                 {"device_free_bytes", failure.device_free_bytes},
                 {"fragmented", failure.IsFragmented()}});
  }
  return line;
}

Json LineOf(const CheckpointsLeftDevice& event) {
  return {{"event", "checkpoints_left_device"}, {"step", event.step}};
}

Json LineOf(const GraphsGaveWay& event) {
  return {{"event", "graphs_gave_way"}, {"step", event.step}};
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

Json LineOf(const Profiled& event) {
  return {{"event", "profile"},
          {"step", event.step},
          {"steps", event.steps},
          {"folder", event.folder},
          {"slower", event.slower}};
}

Json LineOf(const RunStopped& event) {
  return {{"event", "stopped"}, {"step", event.step}, {"epoch", event.epoch}, {"why", event.why}};
}

Json LineOf(const RunFailed& event) {
  return {{"event", "failed"},
          {"step", event.step},
          {"status", event.status},
          {"reason", event.reason}};
}

template <typename Value>
void AddKnown(const char* name, const std::optional<Value>& value, Json& line) {
  if (value) line[name] = *value;
}

void AddKnown(const char* name, const std::optional<double>& value, int places, Json& line) {
  if (value) line[name] = Round(*value, places);
}

Json LineOf(const GpuReading& gpu) {
  Json line{{"index", gpu.index}, {"name", gpu.name}};
  AddKnown("use", gpu.use, 2, line);
  AddKnown("memory_use", gpu.memory_use, 2, line);
  AddKnown("memory_used_bytes", gpu.memory_used, line);
  AddKnown("memory_total_bytes", gpu.memory_total, line);
  AddKnown("process_memory_bytes", gpu.process_memory, line);
  AddKnown("power_w", gpu.power_w, 1, line);
  AddKnown("power_limit_w", gpu.power_limit_w, 1, line);
  AddKnown("energy_j", gpu.energy_j, 0, line);
  AddKnown("temperature_c", gpu.temperature_c, line);
  AddKnown("sm_clock_mhz", gpu.sm_clock_mhz, line);
  AddKnown("sm_clock_limit_mhz", gpu.sm_clock_limit_mhz, line);
  AddKnown("memory_clock_mhz", gpu.memory_clock_mhz, line);
  AddKnown("memory_clock_limit_mhz", gpu.memory_clock_limit_mhz, line);
  if (gpu.throttle_reasons) line["throttled_by"] = ThrottleWords(*gpu.throttle_reasons);
  AddKnown("xid_error", gpu.xid_errors, line);
  AddKnown("pcie_sent_bytes_per_s", gpu.pcie_sent_bytes_per_s, 0, line);
  AddKnown("pcie_received_bytes_per_s", gpu.pcie_received_bytes_per_s, 0, line);
  AddKnown("nvlink_sent_bytes_per_s", gpu.nvlink_sent_bytes_per_s, 0, line);
  AddKnown("nvlink_received_bytes_per_s", gpu.nvlink_received_bytes_per_s, 0, line);
  return line;
}

Json LineOf(const MachineReading& event) {
  const HostReading& host = event.host_reading;
  Json gpus = Json::array();
  for (const GpuReading& gpu : event.gpus) gpus.push_back(LineOf(gpu));
  return {{"event", "machine"},
          {"host", event.host},
          {"cpu_use", Round(host.cpu_use, 3)},
          {"cores", host.cores},
          {"memory_used_bytes", host.memory_used},
          {"memory_total_bytes", host.memory_total},
          {"process_memory_bytes", host.process_memory},
          {"gpus", std::move(gpus)}};
}

Json LineOf(const SecondsReport& event) {
  Json lost;
  for (const Loss loss : kLosses) {
    lost[std::string(NameOf(loss))] = Round(event.lost_s[static_cast<size_t>(loss)], 3);
  }
  Json line{{"event", "seconds"},
            {"step", event.step},
            {"steps", event.steps},
            {"wall_s", Round(event.wall_s, 3)},
            {"ideal_s", Round(event.ideal_s, 3)},
            {"lost_s", std::move(lost)}};
  if (event.flops_share >= 0) line["flops_share"] = Round(event.flops_share, 4);
  if (event.busy_share >= 0) line["busy_share"] = Round(event.busy_share, 4);
  if (event.joules_per_sample >= 0) line["joules_per_sample"] = Round(event.joules_per_sample, 6);
  line["verdict"] = event.verdict;
  line["remedy"] = event.remedy;
  line["findings"] = Json::array();
  for (const RunFinding& finding : event.findings) {
    line["findings"].push_back(
        {{"rule", finding.rule}, {"words", finding.words}, {"remedy", finding.remedy}});
  }
  return line;
}

Json LineOf(const RunDone& event) {
  Json line{{"event", "done"}, {"step", event.step}, {"epoch", event.epoch}};
  AddMetrics(event.metrics, line);
  line.update({{"first_step_s", Round(event.first_step_s, 3)},
               {"samples_per_s", Round(event.samples_per_s, 0)},
               {"total_s", Round(event.total_s, 3)},
               {"data_wait", Round(event.data_wait, 4)}});
  if (!event.early.empty()) line["early"] = event.early;
  return line;
}

// Returns no line, because histograms are too long for a log.
Json LineOf(const Histograms&) { return {}; }

class LogSink final : public EventSink {
 public:
  explicit LogSink(std::function<void(const Json&)> write) : write_(std::move(write)) {}

  void On(const RunEvent& event) override {
    const auto* const reading = std::get_if<MachineReading>(&event);
    if (reading != nullptr && !IsDue(*reading)) return;
    const Json line = std::visit([](const auto& kind) { return LineOf(kind); }, event);
    if (line.is_null()) return;
    Json timed{{"event", line.at("event")}, {"time", Round(UnixSeconds(), 3)}};
    timed.update(line);
    write_(timed);
  }

 private:
  // The minimum time in seconds between two lines of machine readings in the log.
  static constexpr double kReadingsPeriod = 10;

  bool IsDue(const MachineReading& reading) {
    // If the clock is set back by more than the period, the next reading is written at once.
    if (std::abs(reading.time - read_at_) < kReadingsPeriod) return false;
    read_at_ = reading.time;
    return true;
  }

  std::function<void(const Json&)> write_;
  double read_at_ = -std::numeric_limits<double>::infinity();  // Unix time
};

}  // namespace

std::unique_ptr<EventSink> NewLogSink(std::function<void(const Json&)> write) {
  return std::make_unique<LogSink>(std::move(write));
}

}  // namespace lockstep
