#include "launch/machine/unusable_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep {
namespace {

constexpr int kLeastCapability = 75;
constexpr char kWhatIsNeeded[] =
    "Lockstep computes on NVIDIA GPUs of compute capability 7.5 or higher";
constexpr char kName[] = "other gpu";  // the name of the check

constexpr unsigned kAmd = 0x1002;
constexpr unsigned kIntel = 0x8086;
constexpr unsigned kNvidia = 0x10de;
// PCI base classes: the first of the three bytes of a PCI class code.
constexpr unsigned kDisplay = 0x03;
constexpr unsigned kAccelerator = 0x12;

// Returns the hexadecimal number in the file `path`, for example 0x1002; 0 if the file has none.
unsigned NumberIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  unsigned number = 0;
  file >> std::hex >> number;
  return number;
}

// Returns the maker of a GPU, such as "AMD"; an empty string if the device is no GPU of AMD, Intel or NVIDIA. AMD's
// GPUs for servers have the PCI class of accelerators and not that of displays.
std::string MakerOf(unsigned vendor, unsigned device_class) {
  if (vendor == kAmd && (device_class == kDisplay || device_class == kAccelerator)) return "AMD";
  if (vendor == kIntel && device_class == kDisplay) return "Intel";
  if (vendor == kNvidia && device_class == kDisplay) return "NVIDIA";
  return "";
}

}  // namespace

std::vector<Finding> UnusableGpus(const std::vector<DriverGpu>& gpus, const std::string& devices,
                                  bool has_others) {
  std::vector<Finding> findings;
  for (const DriverGpu& gpu : gpus) {
    if (gpu.capability == 0 || gpu.capability >= kLeastCapability) continue;
    findings.push_back(
        {.check = kName,
         .state = State::kWarn,
         .figure = fmt::format("GPU {} ({}) cannot be used: its compute capability is {}.{}",
                               gpu.index, gpu.name, gpu.capability / 10, gpu.capability % 10),
         .advice = fmt::format("{}; leave it out of CUDA_VISIBLE_DEVICES", kWhatIsNeeded)});
  }
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const std::filesystem::path& path : paths) {
    constexpr int kKindBits = 16;
    const unsigned vendor = NumberIn(path / "vendor");
    const std::string maker = MakerOf(vendor, NumberIn(path / "class") >> kKindBits);
    const bool is_nvidia = maker == "NVIDIA";
    // If NVIDIA's driver works, `gpus` has NVIDIA's GPUs, and the loop over `gpus` has handled them.
    if (maker.empty() || (is_nvidia && !gpus.empty())) continue;
    Finding finding{.check = kName,
                    .figure = fmt::format("{} {:04x}:{:04x} at {} cannot be used", maker, vendor,
                                          NumberIn(path / "device"), path.filename().string())};
    if (is_nvidia) {
      finding.state = State::kWarn;
      finding.figure += ": there is no driver that answers";
      finding.advice = "install NVIDIA's driver, or give the container its GPUs (--gpus all)";
    } else {
      finding.figure += fmt::format(": {}", kWhatIsNeeded);
      if (!has_others) {
        finding.state = State::kWarn;
        finding.advice = "training is on the CPU";
      }
    }
    findings.push_back(finding);
  }
  return findings;
}

}  // namespace lockstep
