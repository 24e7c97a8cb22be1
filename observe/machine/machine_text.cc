#include "observe/machine/machine_text.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

constexpr double kGib = 1 << 30;
constexpr int kBarColumns = 20;

double Gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

// Returns for example "3.2 of 15.6 GiB" or "71 of 80 GiB".
std::string MemoryText(int64_t used, int64_t total) {
  constexpr double kLarge = 32;
  return Gib(total) > kLarge ? fmt::format("{:.0f} of {:.0f} GiB", Gib(used), Gib(total))
                             : fmt::format("{:.1f} of {:.1f} GiB", Gib(used), Gib(total));
}

// Returns a bar of which `share` is filled, for example "[#####...............]".
std::string Bar(double share) {
  const auto full =
      static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * double{kBarColumns}));
  return fmt::format("[{:#<{}}{:.<{}}]", "", full, "", kBarColumns - full);
}

// Returns for example "1.2 GB/s" or "300 MB/s".
std::string RateText(double bytes_per_s) {
  constexpr double kGiga = 1e9;
  constexpr double kMega = 1e6;
  return bytes_per_s < kGiga ? fmt::format("{:.0f} MB/s", bytes_per_s / kMega)
                             : fmt::format("{:.1f} GB/s", bytes_per_s / kGiga);
}

// Returns for example "SM 1755 of 1980 MHz"; an empty text if the clock rate is not known.
std::string ClockText(const char* name, std::optional<int> mhz, std::optional<int> most) {
  if (!mhz) return "";
  return most ? fmt::format("{} {} of {} MHz", name, *mhz, *most)
              : fmt::format("{} {} MHz", name, *mhz);
}

// Returns for example "PCIe 1.2 GB/s in, 300 MB/s out"; an empty text if a rate is not known.
std::string LinkText(const char* name, std::optional<double> in, std::optional<double> out) {
  if (!in || !out) return "";
  return fmt::format("{} {} in, {} out", name, RateText(*in), RateText(*out));
}

// Joins the parts that are not empty, with three spaces between two parts.
std::string Joined(std::vector<std::string> parts) {
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "   "));
}

void AddGpu(const GpuReading& gpu, const std::function<ProcessName(int pid)>& name,
            std::vector<std::string>& lines) {
  lines.push_back(fmt::format("GPU {}  {}", gpu.index, gpu.name));
  if (gpu.use)
    lines.push_back(fmt::format("  use     {} {:3.0f} %", Bar(*gpu.use), 100 * *gpu.use));
  if (gpu.memory_used && gpu.memory_total && *gpu.memory_total > 0) {
    const double share =
        static_cast<double>(*gpu.memory_used) / static_cast<double>(*gpu.memory_total);
    lines.push_back(fmt::format("  memory  {} {:3.0f} %   {}", Bar(share), 100 * share,
                                MemoryText(*gpu.memory_used, *gpu.memory_total)));
  }
  std::string power;
  if (gpu.power_w) {
    power = gpu.power_limit_w ? fmt::format("{:.0f} of {:.0f} W", *gpu.power_w, *gpu.power_limit_w)
                              : fmt::format("{:.0f} W", *gpu.power_w);
  }
  lines.push_back("  " +
                  Joined({power, gpu.temperature_c ? fmt::format("{} C", *gpu.temperature_c) : "",
                          ClockText("SM", gpu.sm_clock_mhz, gpu.sm_clock_limit_mhz),
                          ClockText("memory", gpu.memory_clock_mhz, gpu.memory_clock_limit_mhz)}));
  lines.push_back(
      "  " +
      Joined({LinkText("PCIe", gpu.pcie_received_bytes_per_s, gpu.pcie_sent_bytes_per_s),
              LinkText("NVLink", gpu.nvlink_received_bytes_per_s, gpu.nvlink_sent_bytes_per_s)}));
  const std::vector<std::string> reasons = ThrottleWords(gpu.throttle_reasons.value_or(0));
  if (!reasons.empty()) {
    lines.push_back(fmt::format("  clocks kept down by: {}", fmt::join(reasons, ", ")));
  }
  if (gpu.xid_errors.value_or(0) != 0) {
    lines.push_back(
        fmt::format("  XID error {}: see dmesg and NVIDIA's list of XIDs", *gpu.xid_errors));
  }
  for (const GpuProcess& process : gpu.processes) {
    const ProcessName who = name(process.pid);
    lines.push_back("  " +
                    Joined({fmt::format("pid {}", process.pid), who.user,
                            process.memory ? fmt::format("{:.1f} GiB", Gib(*process.memory)) : "",
                            who.command}));
  }
}

}  // namespace

std::string LiveText(const MachineReading& reading) {
  if (reading.gpus.empty()) {
    const HostReading& host = reading.host_reading;
    return fmt::format("CPU {:.0f} %  {}", 100 * host.cpu_use,
                       MemoryText(host.memory_used, host.memory_total));
  }
  std::optional<double> least_use;
  std::optional<double> most_use;
  std::optional<double> power_w;
  std::optional<int> celsius;
  const GpuReading* fullest = nullptr;
  const auto raise = [](auto& most, const auto& value) {
    if (value && (!most || *value > *most)) most = value;
  };
  for (const GpuReading& gpu : reading.gpus) {
    if (gpu.use && (!least_use || *gpu.use < *least_use)) least_use = gpu.use;
    raise(most_use, gpu.use);
    raise(power_w, gpu.power_w);
    raise(celsius, gpu.temperature_c);
    if (gpu.memory_used && gpu.memory_total &&
        (fullest == nullptr || *gpu.memory_used > *fullest->memory_used)) {
      fullest = &gpu;
    }
  }
  std::string text = reading.gpus.size() == 1 ? "GPU" : fmt::format("{} GPUs", reading.gpus.size());
  if (most_use) {
    const double least = std::round(100 * *least_use);
    const double most = std::round(100 * *most_use);
    text += least < most ? fmt::format(" {} to {} %", least, most) : fmt::format(" {} %", most);
  }
  if (fullest != nullptr) text += "  " + MemoryText(*fullest->memory_used, *fullest->memory_total);
  if (power_w) text += fmt::format("  {:.0f} W", *power_w);
  if (celsius) text += fmt::format("  {} C", *celsius);
  return text;
}

ProcessName NameProcess(int pid, const std::string& proc) {
  ProcessName name;
  const std::string folder = fmt::format("{}/{}", proc, pid);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return name;
  passwd user{};
  passwd* found = nullptr;
  std::array<char, 4096> text{};
  name.user =
      getpwuid_r(status.st_uid, &user, text.data(), text.size(), &found) == 0 && found != nullptr
          ? user.pw_name
          : std::to_string(status.st_uid);
  std::ifstream file(folder + "/cmdline", std::ios::binary);
  name.command.assign(std::istreambuf_iterator<char>(file), {});
  while (!name.command.empty() && name.command.back() == '\0') name.command.pop_back();
  std::ranges::replace_if(
      name.command, [](char c) { return c == '\0' || c == '\n' || c == '\t'; }, ' ');
  return name;
}

std::string MachineTable(const MachineReading& reading,
                         const std::function<ProcessName(int pid)>& name) {
  const HostReading& host = reading.host_reading;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("host {}", reading.host));
  lines.push_back(fmt::format("  CPU     {} {:3.0f} %   {:.1f} of {} cores", Bar(host.cpu_use),
                              100 * host.cpu_use, host.cpu_use * host.cores, host.cores));
  if (host.memory_total > 0) {
    const double share =
        static_cast<double>(host.memory_used) / static_cast<double>(host.memory_total);
    lines.push_back(fmt::format("  memory  {} {:3.0f} %   {}", Bar(share), 100 * share,
                                MemoryText(host.memory_used, host.memory_total)));
  }
  for (const GpuReading& gpu : reading.gpus) {
    lines.emplace_back();
    AddGpu(gpu, name, lines);
  }
  std::string table;
  for (const std::string& line : lines) {
    if (line != "  ") table += line + "\n";
  }
  return table;
}

}  // namespace lockstep
