#include "observe/sinks/prometheus_sink.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "observe/machine/host_reader.h"
#include "observe/sinks/background_sink.h"
#include "observe/sinks/exporter.h"
#include "observe/sinks/metrics_text.h"

namespace lockstep {
namespace {

class PrometheusWorker final : public EventWorker {
 public:
  PrometheusWorker(PrometheusOptions options, std::shared_ptr<const std::atomic<int64_t>> steps)
      : options_(std::move(options)),
        steps_(std::move(steps)),
        metrics_(options_.rank, options_.readings_every_s) {}

  void Work(const std::vector<TimedEvent>& events, bool /*ends*/) override {
    for (const TimedEvent& timed : events) metrics_.Add(timed.event);
    // Before the event RunStarted the run folder is not known.
    if (metrics_.run_dir().empty()) return;
    if (!exporter_) {
      exporter_.emplace(Exporter::Options{.address = options_.address,
                                          .port = options_.port,
                                          .file = options_.file,
                                          .run_dir = metrics_.run_dir(),
                                          .rank = options_.rank});
    }
    exporter_->Show(metrics_.Text({.time = UnixSeconds(),
                                   .steps = steps_->load(std::memory_order_relaxed),
                                   .process_memory = ProcessMemory()}));
  }

  int Readable() const override { return exporter_ ? exporter_->socket() : -1; }
  void OnReadable() override { exporter_->Receive(); }

 private:
  PrometheusOptions options_;
  std::shared_ptr<const std::atomic<int64_t>> steps_;
  RankMetrics metrics_;
  std::optional<Exporter> exporter_;
};

}  // namespace

std::unique_ptr<EventSink> NewPrometheusSink(PrometheusOptions options,
                                             std::shared_ptr<const std::atomic<int64_t>> steps) {
  std::string name = options.file.empty() ? "observe.prometheus_port" : "observe.prometheus_file";
  return NewBackgroundSink(
      std::move(name), std::make_unique<PrometheusWorker>(std::move(options), std::move(steps)));
}

}  // namespace lockstep
