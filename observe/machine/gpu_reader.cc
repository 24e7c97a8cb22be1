#include "observe/machine/gpu_reader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <map>
#include <utility>

#include "observe/machine/nvml_library.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the value of an NVML field, whose type the driver chooses; nothing if the driver does not report the field.
std::optional<double> ValueOf(const nvmlFieldValue_t& field) {
  if (field.nvmlReturn != NVML_SUCCESS) return std::nullopt;
  switch (field.valueType) {
    case NVML_VALUE_TYPE_DOUBLE:
      return field.value.dVal;
    case NVML_VALUE_TYPE_UNSIGNED_INT:
      return field.value.uiVal;
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
      return static_cast<double>(field.value.ulVal);
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
      return static_cast<double>(field.value.ullVal);
    case NVML_VALUE_TYPE_SIGNED_LONG_LONG:
      return static_cast<double>(field.value.sllVal);
    default:
      return std::nullopt;
  }
}

// Turns a counter of the driver into a rate.
class Rate {
 public:
  explicit Rate(double bytes_per_unit) : bytes_per_unit_(bytes_per_unit) {}

  // Returns the bytes per second since the previous call; nothing in the first call, or if the counter was reset.
  std::optional<double> At(Clock::time_point now, std::optional<double> counter) {
    std::optional<double> rate;
    if (counter && last_ && *counter >= *last_ && now > at_) {
      rate =
          (*counter - *last_) * bytes_per_unit_ / std::chrono::duration<double>(now - at_).count();
    }
    last_ = counter;
    at_ = now;
    return rate;
  }

 private:
  double bytes_per_unit_;
  std::optional<double> last_;
  Clock::time_point at_;
};

// Calls functions of NVML, as long as `stop` was not requested.
class Asker {
 public:
  explicit Asker(const std::stop_token& stop) : stop_(stop) {}

  template <typename Function, typename... Args>
  nvmlReturn_t Call(const char* name, Args... args) const {
    if (stop_.stop_requested()) return NVML_ERROR_TIMEOUT;
    return TheNvml().Call<Function>(name, args...);
  }

  template <typename Function, typename... Args>
  bool Succeeds(const char* name, Args... args) const {
    return Call<Function>(name, args...) == NVML_SUCCESS;
  }

  // Returns the number that a function of NVML writes; nothing if the call fails.
  template <typename Function, typename Number, typename... Args>
  std::optional<Number> NumberOf(const char* name, Args... args) const {
    Number number{};
    if (!Succeeds<Function>(name, args..., &number)) return std::nullopt;
    return number;
  }

 private:
  const std::stop_token& stop_;
};

}  // namespace

class GpuReader::Gpu {
 public:
  Gpu(nvmlDevice_t handle, GpuReading known, int pid)
      : handle_(handle), known_(std::move(known)), pid_(pid) {}
  ~Gpu() {
    if (events_ != nullptr) {
      TheNvml().Call<decltype(nvmlEventSetFree)>("nvmlEventSetFree", events_);
    }
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Reads the values that do not change. XID errors are recorded from this call on.
  void Begin(const Asker& ask) {
    known_.sm_clock_limit_mhz = ClockOf(ask, "nvmlDeviceGetMaxClockInfo", NVML_CLOCK_SM);
    known_.memory_clock_limit_mhz = ClockOf(ask, "nvmlDeviceGetMaxClockInfo", NVML_CLOCK_MEM);
    if (!ask.Succeeds<decltype(nvmlEventSetCreate)>("nvmlEventSetCreate", &events_)) return;
    if (ask.Succeeds<decltype(nvmlDeviceRegisterEvents)>(
            "nvmlDeviceRegisterEvents", handle_,
            static_cast<unsigned long long>(nvmlEventTypeXidCriticalError), events_)) {
      known_.xid_errors = 0;
    }
  }

  GpuReading Read(const Asker& ask) {
    GpuReading reading = known_;
    nvmlUtilization_t use{};
    if (ask.Succeeds<decltype(nvmlDeviceGetUtilizationRates)>("nvmlDeviceGetUtilizationRates",
                                                              handle_, &use)) {
      reading.use = use.gpu / 100.0;
      reading.memory_use = use.memory / 100.0;
    }
    ReadMemory(ask, reading);
    ReadPower(ask, reading);
    if (const auto celsius = ask.NumberOf<decltype(nvmlDeviceGetTemperature), unsigned int>(
            "nvmlDeviceGetTemperature", handle_, NVML_TEMPERATURE_GPU)) {
      reading.temperature_c = static_cast<int>(*celsius);
    }
    reading.sm_clock_mhz = ClockOf(ask, "nvmlDeviceGetClockInfo", NVML_CLOCK_SM);
    reading.memory_clock_mhz = ClockOf(ask, "nvmlDeviceGetClockInfo", NVML_CLOCK_MEM);
    // This is the older name of nvmlDeviceGetCurrentClocksEventReasons. Older drivers know the function only by this
    // name.
    reading.throttle_reasons =
        ask.NumberOf<decltype(nvmlDeviceGetCurrentClocksThrottleReasons), unsigned long long>(
            "nvmlDeviceGetCurrentClocksThrottleReasons", handle_);
    ReadErrors(ask, reading);
    ReadLinks(ask, reading);
    ReadProcesses(ask, reading);
    return reading;
  }

 private:
  std::optional<int> ClockOf(const Asker& ask, const char* name, nvmlClockType_t clock) const {
    const auto mhz =
        ask.NumberOf<decltype(nvmlDeviceGetClockInfo), unsigned int>(name, handle_, clock);
    return mhz ? std::optional(static_cast<int>(*mhz)) : std::nullopt;
  }

  void ReadMemory(const Asker& ask, GpuReading& reading) const {
    // The used memory that the _v2 function returns does not include the memory that the driver reserves for itself, as
    // in nvidia-smi. Older drivers have only the function without _v2, whose used memory includes the reserved memory.
    nvmlMemory_v2_t memory{.version = nvmlMemory_v2};
    nvmlMemory_t old{};
    if (ask.Succeeds<decltype(nvmlDeviceGetMemoryInfo_v2)>("nvmlDeviceGetMemoryInfo_v2", handle_,
                                                           &memory)) {
      reading.memory_used = static_cast<int64_t>(memory.used);
      reading.memory_free = static_cast<int64_t>(memory.free);
      reading.memory_total = static_cast<int64_t>(memory.total);
    } else if (ask.Succeeds<decltype(nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo", handle_,
                                                               &old)) {
      reading.memory_used = static_cast<int64_t>(old.used);
      reading.memory_free = static_cast<int64_t>(old.free);
      reading.memory_total = static_cast<int64_t>(old.total);
    }
  }

  void ReadPower(const Asker& ask, GpuReading& reading) const {
    constexpr double kMilli = 1e-3;
    if (const auto power = ask.NumberOf<decltype(nvmlDeviceGetPowerUsage), unsigned int>(
            "nvmlDeviceGetPowerUsage", handle_)) {
      reading.power_w = *power * kMilli;
    }
    if (const auto limit = ask.NumberOf<decltype(nvmlDeviceGetEnforcedPowerLimit), unsigned int>(
            "nvmlDeviceGetEnforcedPowerLimit", handle_)) {
      reading.power_limit_w = *limit * kMilli;
    }
    if (const auto energy =
            ask.NumberOf<decltype(nvmlDeviceGetTotalEnergyConsumption), unsigned long long>(
                "nvmlDeviceGetTotalEnergyConsumption", handle_)) {
      reading.energy_j = static_cast<double>(*energy) * kMilli;
    }
  }

  // Reads the last XID error that came since Begin().
  void ReadErrors(const Asker& ask, GpuReading& reading) {
    constexpr int kMost = 64;  // the maximum number of errors that one call reads
    nvmlEventData_t event{};
    for (int i = 0; known_.xid_errors && i < kMost; ++i) {
      if (!ask.Succeeds<decltype(nvmlEventSetWait_v2)>("nvmlEventSetWait_v2", events_, &event,
                                                       0U)) {
        break;
      }
      known_.xid_errors = static_cast<int>(event.eventData);
    }
    reading.xid_errors = known_.xid_errors;
  }

  void ReadLinks(const Asker& ask, GpuReading& reading) {
    NvmlFields<4> fields;
    fields[0].fieldId = NVML_FI_DEV_PCIE_COUNT_TX_BYTES;
    fields[1].fieldId = NVML_FI_DEV_PCIE_COUNT_RX_BYTES;
    fields[2].fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX;
    fields[3].fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX;
    fields[2].scopeId = fields[3].scopeId = UINT_MAX;  // UINT_MAX stands for the sum over all links
    const bool has_fields = ask.Succeeds<decltype(nvmlDeviceGetFieldValues)>(
        "nvmlDeviceGetFieldValues", handle_, fields.kCount, fields.data());
    const Clock::time_point now = Clock::now();
    if (has_fields) {
      reading.pcie_sent_bytes_per_s = pcie_sent_.At(now, ValueOf(fields[0]));
      reading.pcie_received_bytes_per_s = pcie_received_.At(now, ValueOf(fields[1]));
      reading.nvlink_sent_bytes_per_s = nvlink_sent_.At(now, ValueOf(fields[2]));
      reading.nvlink_received_bytes_per_s = nvlink_received_.At(now, ValueOf(fields[3]));
    }
    if (has_fields && fields[0].nvmlReturn == NVML_SUCCESS) return;
    // If the driver does not have the PCIe counters, nvmlDeviceGetPcieThroughput is called, which measures the
    // throughput over 20 ms and returns KB/s.
    constexpr double kKilo = 1e3;
    for (const auto& [counter, rate] :
         {std::pair(NVML_PCIE_UTIL_TX_BYTES, &reading.pcie_sent_bytes_per_s),
          {NVML_PCIE_UTIL_RX_BYTES, &reading.pcie_received_bytes_per_s}}) {
      if (const auto measured = ask.NumberOf<decltype(nvmlDeviceGetPcieThroughput), unsigned int>(
              "nvmlDeviceGetPcieThroughput", handle_, counter)) {
        *rate = *measured * kKilo;
      }
    }
  }

  void ReadProcesses(const Asker& ask, GpuReading& reading) const {
    std::map<int, GpuProcess> by_pid;
    for (const char* const name :
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
      std::vector<nvmlProcessInfo_t> processes(64);
      for (int i = 0; i < 2; ++i) {
        auto count = static_cast<unsigned int>(processes.size());
        const nvmlReturn_t code = ask.Call<decltype(nvmlDeviceGetComputeRunningProcesses_v3)>(
            name, handle_, &count, processes.data());
        if (code == NVML_ERROR_INSUFFICIENT_SIZE) {
          processes.resize(count + 64);  // more processes may come before the next call
          continue;
        }
        processes.resize(code == NVML_SUCCESS ? count : 0);
        for (const nvmlProcessInfo_t& process : processes) {
          GpuProcess& found = by_pid[static_cast<int>(process.pid)];
          found.pid = static_cast<int>(process.pid);
          if (process.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE)) {
            found.memory = static_cast<int64_t>(process.usedGpuMemory);
          }
        }
        break;
      }
    }
    for (const auto& [pid, process] : by_pid) {
      reading.processes.push_back(process);
      if (pid == pid_) reading.process_memory = process.memory;
    }
  }

  static constexpr double kKibibyte = 1024;

  nvmlDevice_t handle_;
  GpuReading known_;
  int pid_;                          // the id of the job's process on this GPU; 0: none
  nvmlEventSet_t events_ = nullptr;  // the event set to which NVML reports XID errors
  Rate pcie_sent_{1};
  Rate pcie_received_{1};
  Rate nvlink_sent_{kKibibyte};
  Rate nvlink_received_{kKibibyte};
};

GpuReader::GpuReader(std::optional<std::vector<GpuUser>> users) : users_(std::move(users)) {}

GpuReader::~GpuReader() = default;

void GpuReader::Find(const std::stop_token& stop) {
  // If no GPU is to be read, the driver is not called at all.
  if (users_ && users_->empty()) return;
  if (stop.stop_requested() || !TheNvml().is_ready()) return;
  const Asker ask(stop);
  const unsigned int count =
      ask.NumberOf<decltype(nvmlDeviceGetCount_v2), unsigned int>("nvmlDeviceGetCount_v2")
          .value_or(0);
  for (unsigned int i = 0; i < count; ++i) {
    GpuReading known{.index = static_cast<int>(i)};
    nvmlDevice_t handle = nullptr;
    std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> uuid{};
    if (!ask.Succeeds<decltype(nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2", i,
                                                               &handle)) {
      continue;
    }
    if (ask.Succeeds<decltype(nvmlDeviceGetUUID)>("nvmlDeviceGetUUID", handle, uuid.data(),
                                                  static_cast<unsigned int>(uuid.size()))) {
      known.uuid = uuid.data();
    }
    int pid = 0;
    if (users_) {
      const auto user = std::ranges::find(*users_, known.uuid, &GpuUser::uuid);
      if (user == users_->end()) continue;
      pid = user->pid;
      known.rank = user->rank;
    }
    std::array<char, NVML_DEVICE_NAME_V2_BUFFER_SIZE> name{};
    if (ask.Succeeds<decltype(nvmlDeviceGetName)>("nvmlDeviceGetName", handle, name.data(),
                                                  static_cast<unsigned int>(name.size()))) {
      known.name = name.data();
    }
    gpus_.push_back(std::make_unique<Gpu>(handle, std::move(known), pid));
    gpus_.back()->Begin(ask);
  }
}

std::vector<GpuReading> GpuReader::Read(const std::stop_token& stop) {
  if (!std::exchange(has_searched_, true)) Find(stop);
  const Asker ask(stop);
  std::vector<GpuReading> readings;
  for (const std::unique_ptr<Gpu>& gpu : gpus_) readings.push_back(gpu->Read(ask));
  return readings;
}

}  // namespace lockstep
