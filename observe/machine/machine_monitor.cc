#include "observe/machine/machine_monitor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <stop_token>
#include <utility>

#include "base/clock.h"
#include "base/host_name.h"

namespace lockstep {
namespace {

// The maximum period in seconds. With a much longer period the end of a wait would not fit in a time point.
constexpr double kLongest = 1e6;

}  // namespace

MachineReading ReadMachine(HostReader& host, GpuReader& gpus, const std::stop_token& stop) {
  MachineReading reading{.host = HostName(), .host_reading = host.Read(), .gpus = gpus.Read(stop)};
  reading.time = UnixSeconds();
  return reading;
}

MachineMonitor::MachineMonitor(std::optional<std::vector<GpuUser>> users, double every_s)
    : users_(std::move(users)),
      every_s_(std::min(every_s, kLongest)),
      thread_([this](const std::stop_token& stop) {
        try {
          Run(stop);
        } catch (const std::bad_alloc&) {  // the run goes on without readings
        }
      }) {}

MachineMonitor::~MachineMonitor() {
  thread_.request_stop();
  thread_.join();
}

void MachineMonitor::Run(const std::stop_token& stop) {
  constexpr double kFirst = 1;
  HostReader host;
  GpuReader gpus(users_);
  gpus.Read(stop);
  // wait_for() needs a lock, which only this thread takes. The wait ends when the time is over or when a stop is
  // requested.
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  const auto rest = [&](double seconds) {
    wake.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
    return !stop.stop_requested();
  };
  for (double wait = std::min(every_s_, kFirst); rest(wait); wait = every_s_) {
    auto reading = std::make_unique<MachineReading>(ReadMachine(host, gpus, stop));
    if (stop.stop_requested()) return;
    newest_.Put(std::move(reading));
  }
}

}  // namespace lockstep
