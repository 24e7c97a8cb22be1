#include "observe/sinks/tensorboard_sink.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "observe/sinks/background_sink.h"
#include "observe/sinks/event_file.h"
#include "observe/sinks/tensorboard_event.pb.h"

namespace lockstep {
namespace {

// The scalars of one event of TensorBoard. Values that are not known are left out.
class Scalars {
 public:
  void Add(std::string_view tag, double value) {
    tensorboard::Summary::Value& added = *summary_.add_value();
    added.set_tag(std::string(tag));
    added.set_simple_value(static_cast<float>(value));
  }
  template <typename Number>
  void Add(std::string_view tag, const std::optional<Number>& value) {
    if (value) Add(tag, static_cast<double>(*value));
  }

  tensorboard::Summary Take() { return std::move(summary_); }

 private:
  tensorboard::Summary summary_;
};

class TensorBoardWorker final : public EventWorker {
 public:
  TensorBoardWorker(const std::string& run_dir, const std::string& optimizer)
      : file_(run_dir + "/tensorboard"), lr_tag_("lr-" + optimizer) {}

  void Work(const std::vector<TimedEvent>& events, bool /*ends*/) override {
    for (const TimedEvent& timed : events) {
      time_ = timed.time;
      std::visit([this](const auto& event) { Take(event); }, timed.event);
    }
    file_.Flush();
  }

 private:
  // Ignores the events that have no overload of their own.
  template <typename Event>
  void Take(const Event&) {}

  void Take(const RunResumed& event) {
    step_ = event.step;
    first_step_ = event.step + 1;
  }

  void Take(const StepDone& event) {
    const StepReport& report = event.report;
    step_ = report.step;
    Scalars scalars;
    scalars.Add("train_loss", report.loss());
    scalars.Add("epoch", static_cast<double>(report.epoch));
    scalars.Add(lr_tag_, report.lr);
    scalars.Add("grad_norm", report.figures[ops::kGradNorm]);
    if (report.has_loss_scale) scalars.Add("loss_scale", report.figures[ops::kScale]);
    scalars.Add("skipped_steps", report.figures[ops::kSkipped]);
    scalars.Add("throughput/samples_per_sec", report.samples_per_s);
    scalars.Add("data_wait", report.data_wait);
    Write(std::move(scalars));
  }

  void Take(const EpochDone& event) {
    step_ = event.step;
    Scalars scalars;
    scalars.Add("train_loss_epoch", event.loss);
    scalars.Add("throughput/samples_per_sec_epoch", event.samples_per_s);
    Write(std::move(scalars));
  }

  void Take(const Evaluated& event) {
    step_ = event.step;
    Scalars scalars;
    for (const Metric& metric : event.metrics) scalars.Add("val_" + metric.name, metric.value);
    Write(std::move(scalars));
  }

  void Take(const Histograms& event) {
    tensorboard::Event written = EventOf(event.step);
    for (const Histogram& histogram : event.histograms) {
      tensorboard::Summary::Value& value = *written.mutable_summary()->add_value();
      value.set_tag(histogram.tag);
      tensorboard::Histogram& added = *value.mutable_histo();
      added.set_min(histogram.min);
      added.set_max(histogram.max);
      added.set_num(histogram.num);
      added.set_sum(histogram.sum);
      added.set_sum_squares(histogram.sum_squares);
      added.mutable_bucket_limit()->Assign(histogram.limits.begin(), histogram.limits.end());
      added.mutable_bucket()->Assign(histogram.counts.begin(), histogram.counts.end());
    }
    Write(written);
  }

  void Take(const MachineReading& reading) {
    Scalars scalars;
    for (const GpuReading& gpu : reading.gpus) {
      const std::string tag = fmt::format("gpu{}/", gpu.index);
      scalars.Add(tag + "use", gpu.use);
      scalars.Add(tag + "memory_use", gpu.memory_use);
      scalars.Add(tag + "memory_used_bytes", gpu.memory_used);
      scalars.Add(tag + "process_memory_bytes", gpu.process_memory);
      scalars.Add(tag + "power_w", gpu.power_w);
      scalars.Add(tag + "temperature_c", gpu.temperature_c);
      scalars.Add(tag + "sm_clock_mhz", gpu.sm_clock_mhz);
      scalars.Add(tag + "pcie_sent_bytes_per_s", gpu.pcie_sent_bytes_per_s);
      scalars.Add(tag + "pcie_received_bytes_per_s", gpu.pcie_received_bytes_per_s);
      scalars.Add(tag + "nvlink_sent_bytes_per_s", gpu.nvlink_sent_bytes_per_s);
      scalars.Add(tag + "nvlink_received_bytes_per_s", gpu.nvlink_received_bytes_per_s);
    }
    const HostReading& host = reading.host_reading;
    scalars.Add("host/cpu_use", host.cpu_use);
    scalars.Add("host/memory_used_bytes", static_cast<double>(host.memory_used));
    scalars.Add("host/process_memory_bytes", static_cast<double>(host.process_memory));
    Write(std::move(scalars));
  }

  void Take(const SecondsReport& report) {
    Scalars scalars;
    for (const Loss loss : kLosses) {
      scalars.Add(fmt::format("lost_seconds/{}", NameOf(loss)),
                  report.lost_s[static_cast<size_t>(loss)]);
    }
    scalars.Add("ideal_share", report.ideal_share());
    if (report.flops_share >= 0) scalars.Add("flops_share", report.flops_share);
    if (report.busy_share >= 0) scalars.Add("busy_share", report.busy_share);
    if (report.joules_per_sample >= 0) scalars.Add("joules_per_sample", report.joules_per_sample);
    Write(std::move(scalars));
  }

  void Write(Scalars scalars) {
    tensorboard::Event event = EventOf(step_);
    *event.mutable_summary() = scalars.Take();
    Write(event);
  }

  void Write(const tensorboard::Event& event) {
    if (!std::exchange(began_, true)) Begin();
    file_.Add(event.SerializeAsString());
  }

  // Writes the first records of the file. If the run is resumed, Begin() must be called after the event RunResumed,
  // which has the step from which the run is resumed.
  void Begin() {
    tensorboard::Event version = EventOf(0);
    version.set_file_version("brain.Event:2");
    file_.Add(version.SerializeAsString());
    tensorboard::Event start = EventOf(first_step_);
    start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    file_.Add(start.SerializeAsString());
  }

  tensorboard::Event EventOf(int64_t step) const {
    tensorboard::Event event;
    event.set_wall_time(time_);
    event.set_step(step);
    return event;
  }

  EventFile file_;
  std::string lr_tag_;
  double time_ = 0;         // the Unix time at which the current event was emitted
  int64_t step_ = 0;        // the last step
  int64_t first_step_ = 0;  // the first step after a resume; 0: the run was not resumed
  bool began_ = false;
};

}  // namespace

std::unique_ptr<EventSink> NewTensorBoardSink(const std::string& run_dir,
                                              const std::string& optimizer) {
  return NewBackgroundSink("observe.tensorboard",
                           std::make_unique<TensorBoardWorker>(run_dir, optimizer));
}

}  // namespace lockstep
