#include "launch/tune/loader_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "launch/tune/line_search.h"
#include "observe/machine/host_reader.h"

namespace lockstep {
namespace {

// The time limit is divided among kTrials trials, because a search rarely needs more trials. Each trial starts a
// process, which takes about kStart_s seconds. The warm-up and the measurement then take equally long.
constexpr int kTrials = 12;
constexpr double kStart_s = 1;

// More threads than cores can be useful, because a thread that waits for a slow disk takes no time of a core.
constexpr int kMostThreadsPerCore = 8;
constexpr int kMostThreads = 64;

double SecondsOfTrial(double left_s) {
  constexpr double kLeast_s = 0.5;
  constexpr double kMost_s = 4;
  return std::clamp((left_s / kTrials - kStart_s) / 2, kLeast_s, kMost_s);
}

bool DecodesOnGpu(const config::Config& config) {
  return config.data().images().decode() == config::Images::GPU;
}

// Returns whether `bytes` are less than half of the free memory, so that enough memory is left for other programs.
bool HasRoomFor(int64_t bytes) {
  const HostReading host = HostReader().Read();
  return 2 * bytes < host.memory_total - host.memory_used;
}

// A function object that measures the loader with a setting.
class LoaderMeter {
 public:
  LoaderMeter(TrialRunner& runner, const ConfigWith& config_with, bool cold, double trial_s)
      : runner_(runner), config_with_(config_with), cold_(cold), trial_s_(trial_s) {}

  SettingTrial operator()(const Setting& setting) {
    SettingTrial trial;
    config::Config config;
    try {
      config = config_with_(setting);
    } catch (const Error& error) {
      trial.note = error.what();
      return trial;
    }
    // Unless `cold_` is set, the first setting is measured twice, because the first measurement brings the files into
    // the page cache. The speed of that measurement is not used.
    if (!cold_ && std::exchange(is_first_, false) && runner_.HasTime()) {
      trial.stopped = runner_.MeasureLoader(config, trial_s_, cold_).stopped;
      if (trial.stopped) return trial;
    }
    last_ = runner_.MeasureLoader(config, trial_s_, cold_);
    trial.wall_s = last_.wall_s;
    trial.stopped = last_.stopped;
    trial.note = last_.failure;
    if (!last_.failure.empty()) return trial;
    if (config.data().images().cache() != config::Images::OFF && !last_.warm && !cold_) {
      // Some samples were still read for the first time in the measurement, so the speed says nothing about later
      // epochs, which read all samples from the image cache.
      trial.note = fmt::format("not all {} samples were read in {:.1f} s: give more --time",
                               last_.samples, trial_s_);
      return trial;
    }
    trial.samples_per_s = last_.samples_per_s;
    if (setting.empty()) {
      trial.note = fmt::format("{} thread{}; limit: {}", last_.threads,
                               last_.threads == 1 ? "" : "s", last_.limit);
    }
    return trial;
  }

  const LoaderTrial& last() const { return last_; }

  // Sets the length of later measurements, and of the warm-up before each, in seconds.
  void SetSeconds(double trial_s) { trial_s_ = trial_s; }

 private:
  TrialRunner& runner_;
  const ConfigWith& config_with_;
  bool cold_;
  bool is_first_ = true;
  double trial_s_;
  LoaderTrial last_;
};

}  // namespace

bool HasLoader(const config::Config& config) {
  return config.data().format() != config::Data::SYNTHETIC;
}

SettingTrials FindLoader(TrialRunner& runner, const ConfigWith& config_with,
                         const LoaderSearch& search,
                         const std::function<void(const SettingTrial&)>& on_trial) {
  const config::Config config = config_with({});
  const double trial_s = SecondsOfTrial(search.end_s - SecondsSinceBoot());
  LoaderMeter meter(runner, config_with, search.cold, trial_s);
  SettingTrials trials(std::ref(meter), search.end_s, on_trial);
  if (trials.stopped() || trials.users().samples_per_s > search.ample) return trials;
  const LoaderTrial users = meter.last();
  int threads = users.threads;
  const auto attempt = [&](const Setting& setting) {
    const auto speed = trials.Try(setting);
    if (speed == trials.best().samples_per_s) threads = meter.last().threads;
  };
  if (config.data().format() == config::Data::IMAGES) {
    const config::Images& images = config.data().images();
    const bool keeps_pixels = images.cache() == config::Images::DECODED;
    if (users.on_gpu && !keeps_pixels && !DecodesOnGpu(config)) {
      attempt({{"data.images.decode", "GPU"}});
    }
    // If `search.cold` is set, the image cache is not tried, because `cold` stands for data that do not fit in memory.
    // `epoch_s` has the factor 2 because an epoch that fills the image cache decodes whole images, which takes longer
    // than decoding only the crops that training needs.
    const double epoch_s = 2 * static_cast<double>(users.samples) / users.samples_per_s;
    const bool has_time = SecondsSinceBoot() + 3 * epoch_s < search.end_s;
    if (!search.cold && !keeps_pixels && has_time &&
        HasRoomFor(search.ranks * (images.cache_mib() << 20))) {
      Setting keep{{"data.images.cache", "DECODED"}};
      if (DecodesOnGpu(config_with(trials.best().setting))) {
        keep.push_back({"data.images.decode", "CPU"});
      }
      meter.SetSeconds(std::max(trial_s, epoch_s));
      attempt(keep);
      if (trials.best().setting != keep) meter.SetSeconds(trial_s);
    }
  }
  const int begin = std::max(threads, 1);
  LineSearch line(begin, 1,
                  std::min(kMostThreads, std::max(begin, kMostThreadsPerCore * UsableCores())));
  line.Add(begin, trials.best().samples_per_s);
  while (const auto number = line.Next()) {
    const auto speed = trials.Try({{"loader.threads", std::to_string(*number)}});
    if (!speed) break;
    line.Add(*number, *speed);
  }
  trials.Try({{"loader.slots", std::to_string(2 * config.loader().slots())}});
  trials.Confirm();
  return trials;
}

}  // namespace lockstep
