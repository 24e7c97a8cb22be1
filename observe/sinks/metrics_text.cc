#include "observe/sinks/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace lockstep {
namespace {

struct Family {
  std::string_view name;
  std::string_view type;
  std::string_view help;
};

constexpr Family kFamilies[] = {
    {"lockstep_info", "gauge", "1; the labels say what is trained."},
    {"lockstep_ranks", "gauge", "Ranks of the job."},
    {"lockstep_restarts_total", "counter", "Times that --restarts has started the job again."},
    {"lockstep_step", "gauge", "Optimizer steps of the run that are done."},
    {"lockstep_steps_planned", "gauge", "Optimizer steps after which the run is done."},
    {"lockstep_steps_total", "counter", "Optimizer steps that this process has made."},
    {"lockstep_epoch", "gauge", "Epoch of the last logged step, from 1."},
    {"lockstep_loss", "gauge", "Training loss of the last logged step."},
    {"lockstep_learning_rate", "gauge", "Learning rate of the last logged step."},
    {"lockstep_grad_norm", "gauge", "L2 norm of the gradient before clipping."},
    {"lockstep_loss_scale", "gauge", "Loss scale of FP16."},
    {"lockstep_skipped_steps", "gauge", "Steps of the run without an update."},
    {"lockstep_samples_per_second", "gauge", "Training samples a second of all ranks."},
    {"lockstep_data_wait_ratio", "gauge", "Share of the time that the device waited for samples."},
    {"lockstep_loader_threads", "gauge", "Threads that read samples."},
    {"lockstep_checkpoints_total", "counter", "Checkpoints that this process has committed."},
    {"lockstep_validation", "gauge", "Metrics of the validation samples, the last."},
    {"lockstep_lost_seconds_total", "counter", "Seconds that this process lost, by cause."},
    {"lockstep_ideal_ratio", "gauge", "Time at the run's own best speed by the time it took."},
    {"lockstep_flops_ratio", "gauge", "Share of the device's peak FLOP/s in an ideal step."},
    {"lockstep_busy_ratio", "gauge", "Share of the time in which a kernel ran on the GPUs."},
    {"lockstep_seconds_left", "gauge", "Estimated seconds to the end of the run."},
    {"lockstep_joules_per_sample", "gauge", "Energy of the GPU by sample."},
    {"lockstep_host_cpu_ratio", "gauge", "Share of the machine's cores that is in use."},
    {"lockstep_host_memory_used_bytes", "gauge", "Memory of the machine that is in use."},
    {"lockstep_host_memory_total_bytes", "gauge", "Memory of the machine."},
    {"lockstep_process_resident_memory_bytes", "gauge", "Memory of this rank's process."},
    {"lockstep_gpu_process_memory_bytes", "gauge", "GPU memory of this rank's process."},
    {"lockstep_gpu_pcie_sent_bytes_per_second", "gauge", "What the GPU sends by PCI Express."},
    {"lockstep_gpu_pcie_received_bytes_per_second", "gauge", "What it receives by PCI Express."},
    {"lockstep_gpu_nvlink_sent_bytes_per_second", "gauge", "What the GPU sends by NVLink."},
    {"lockstep_gpu_nvlink_received_bytes_per_second", "gauge", "What it receives by NVLink."},
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %)."},
    {"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."},
    {"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit (in W)."},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter",
     "Total energy consumption since boot (in mJ)."},
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MAX_SM_CLOCK", "gauge", "Maximum SM clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."},
    {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Bits of NVML's reasons to lower the clock."},
    {"DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."},
};

// Returns `text` as the value of a label, in quotation marks and with escapes.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + '"';
}

std::string LabelText(std::string_view name, std::string_view value) {
  return fmt::format("{}={}", name, Quoted(value));
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// A reading of the machine is shown until it is older than kFreshPeriods reading periods and older than kFreshS
// seconds.
constexpr double kFreshPeriods = 3;
constexpr double kFreshS = 10;

class Series {
 public:
  void Add(std::string_view family, std::string_view labels, double value) {
    text_ += fmt::format("{}{{{}}} {}\n", family, labels, NumberText(value));
  }
  template <typename Number>
  void Add(std::string_view family, std::string_view labels, const std::optional<Number>& value,
           double unit = 1) {
    if (value) Add(family, labels, unit * static_cast<double>(*value));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void AddStep(const StepReport& report, const std::string& labels, Series& series) {
  series.Add("lockstep_epoch", labels, static_cast<double>(report.epoch));
  series.Add("lockstep_loss", labels, report.loss());
  series.Add("lockstep_learning_rate", labels, report.lr);
  series.Add("lockstep_grad_norm", labels, report.figures[ops::kGradNorm]);
  if (report.has_loss_scale) {
    series.Add("lockstep_loss_scale", labels, report.figures[ops::kScale]);
  }
  series.Add("lockstep_skipped_steps", labels, report.figures[ops::kSkipped]);
  series.Add("lockstep_samples_per_second", labels, report.samples_per_s);
  if (report.seconds_left >= 0) series.Add("lockstep_seconds_left", labels, report.seconds_left);
  series.Add("lockstep_data_wait_ratio", labels, report.data_wait);
  series.Add("lockstep_loader_threads", labels, report.loader_threads);
}

void AddSeconds(const SecondsReport& report, const std::array<double, kLosses.size()>& lost_s,
                const std::string& labels, Series& series) {
  for (const Loss loss : kLosses) {
    series.Add("lockstep_lost_seconds_total", labels + "," + LabelText("cause", NameOf(loss)),
               lost_s[static_cast<size_t>(loss)]);
  }
  series.Add("lockstep_ideal_ratio", labels, report.ideal_share());
  if (report.flops_share >= 0) series.Add("lockstep_flops_ratio", labels, report.flops_share);
  if (report.busy_share >= 0) series.Add("lockstep_busy_ratio", labels, report.busy_share);
  if (report.joules_per_sample >= 0) {
    series.Add("lockstep_joules_per_sample", labels, report.joules_per_sample);
  }
}

// Returns the labels that name a run and a rank.
std::string RankLabels(const std::string& run_dir, int rank) {
  return fmt::format("{},{}", LabelText("run", run_dir), LabelText("rank", std::to_string(rank)));
}

void AddGpu(const GpuReading& gpu, const std::string& host, const std::string& run_dir,
            Series& series) {
  constexpr double kMiB = 1.0 / (1 << 20);
  const std::string labels = fmt::format(
      "{},{},{},{},{}", LabelText("gpu", std::to_string(gpu.index)), LabelText("UUID", gpu.uuid),
      LabelText("device", fmt::format("nvidia{}", gpu.index)), LabelText("modelName", gpu.name),
      LabelText("Hostname", host));
  series.Add("DCGM_FI_DEV_GPU_UTIL", labels, gpu.use, 100);
  series.Add("DCGM_FI_DEV_MEM_COPY_UTIL", labels, gpu.memory_use, 100);
  series.Add("DCGM_FI_DEV_FB_USED", labels, gpu.memory_used, kMiB);
  series.Add("DCGM_FI_DEV_FB_FREE", labels, gpu.memory_free, kMiB);
  series.Add("DCGM_FI_DEV_GPU_TEMP", labels, gpu.temperature_c);
  series.Add("DCGM_FI_DEV_POWER_USAGE", labels, gpu.power_w);
  series.Add("DCGM_FI_DEV_POWER_MGMT_LIMIT", labels, gpu.power_limit_w);
  series.Add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, gpu.energy_j, 1e3);
  series.Add("DCGM_FI_DEV_SM_CLOCK", labels, gpu.sm_clock_mhz);
  series.Add("DCGM_FI_DEV_MAX_SM_CLOCK", labels, gpu.sm_clock_limit_mhz);
  series.Add("DCGM_FI_DEV_MEM_CLOCK", labels, gpu.memory_clock_mhz);
  series.Add("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", labels, gpu.throttle_reasons);
  series.Add("DCGM_FI_DEV_XID_ERRORS", labels, gpu.xid_errors);
  series.Add("lockstep_gpu_pcie_sent_bytes_per_second", labels, gpu.pcie_sent_bytes_per_s);
  series.Add("lockstep_gpu_pcie_received_bytes_per_second", labels, gpu.pcie_received_bytes_per_s);
  series.Add("lockstep_gpu_nvlink_sent_bytes_per_second", labels, gpu.nvlink_sent_bytes_per_s);
  series.Add("lockstep_gpu_nvlink_received_bytes_per_second", labels,
             gpu.nvlink_received_bytes_per_s);
  if (gpu.rank) {
    series.Add("lockstep_gpu_process_memory_bytes", RankLabels(run_dir, *gpu.rank) + "," + labels,
               gpu.process_memory);
  }
}

void AddMachine(const MachineReading& reading, const std::string& run_dir, Series& series) {
  for (const GpuReading& gpu : reading.gpus) AddGpu(gpu, reading.host, run_dir, series);
  const HostReading& host = reading.host_reading;
  const std::string labels = LabelText("Hostname", reading.host);
  series.Add("lockstep_host_cpu_ratio", labels, host.cpu_use);
  series.Add("lockstep_host_memory_used_bytes", labels, static_cast<double>(host.memory_used));
  series.Add("lockstep_host_memory_total_bytes", labels, static_cast<double>(host.memory_total));
}

}  // namespace

void RankMetrics::Add(const RunEvent& event) {
  if (const auto* started = std::get_if<RunStarted>(&event)) {
    start_ = *started;
  } else if (const auto* resumed = std::get_if<RunResumed>(&event)) {
    resumed_step_ = resumed->step;
  } else if (const auto* done = std::get_if<StepDone>(&event)) {
    report_ = done->report;
  } else if (const auto* evaluated = std::get_if<Evaluated>(&event)) {
    validation_ = evaluated->metrics;
  } else if (std::holds_alternative<CheckpointSaved>(event)) {
    ++checkpoints_;
  } else if (const auto* reading = std::get_if<MachineReading>(&event)) {
    machine_ = *reading;
  } else if (const auto* seconds = std::get_if<SecondsReport>(&event)) {
    seconds_ = *seconds;
    for (size_t i = 0; i < lost_s_.size(); ++i) {
      lost_s_[i] = std::max(lost_s_[i], seconds->lost_s[i]);
    }
  }
}

std::string RankMetrics::Text(const Present& present) const {
  const std::string labels = RankLabels(start_.run_dir, rank_);
  const int64_t step = std::max(present.steps, resumed_step_);
  Series series;
  series.Add(
      "lockstep_info",
      fmt::format("{},{},{},{}", labels, LabelText("version", start_.version),
                  LabelText("model", start_.model), LabelText("precision", start_.precision)),
      1);
  series.Add("lockstep_ranks", labels, start_.ranks);
  series.Add("lockstep_restarts_total", labels, static_cast<double>(start_.restarts));
  series.Add("lockstep_step", labels, static_cast<double>(step));
  series.Add("lockstep_steps_planned", labels, static_cast<double>(start_.steps));
  series.Add("lockstep_steps_total", labels, static_cast<double>(step - resumed_step_));
  series.Add("lockstep_checkpoints_total", labels, static_cast<double>(checkpoints_));
  if (report_) AddStep(*report_, labels, series);
  for (const Metric& metric : validation_) {
    series.Add("lockstep_validation", labels + "," + LabelText("metric", metric.name),
               metric.value);
  }
  if (seconds_) AddSeconds(*seconds_, lost_s_, labels, series);
  if (present.process_memory > 0) {
    series.Add("lockstep_process_resident_memory_bytes", labels,
               static_cast<double>(present.process_memory));
  }
  if (machine_ && present.time - machine_->time <= std::max(kFreshPeriods * every_s_, kFreshS)) {
    AddMachine(*machine_, start_.run_dir, series);
  }
  return series.Take();
}

std::string MergedMetrics(const std::vector<std::string_view>& texts) {
  std::map<std::string_view, std::vector<std::string_view>> lines;  // by family
  std::set<std::string_view> known;  // the series so far, without their values
  for (std::string_view text : texts) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (!known.insert(line.substr(0, line.rfind(' '))).second) continue;
      lines[line.substr(0, line.find('{'))].push_back(line);
    }
  }
  std::string page;
  for (const Family& family : kFamilies) {
    const auto found = lines.find(family.name);
    if (found == lines.end()) continue;
    page += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", family.name, family.type, family.help);
    for (const std::string_view line : found->second) page.append(line) += '\n';
  }
  return page;
}

}  // namespace lockstep
