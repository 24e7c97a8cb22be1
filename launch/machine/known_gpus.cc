#include "launch/machine/known_gpus.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace lockstep {
namespace {

constexpr std::array kGpus = {
    KnownGpu{"T4", {7, 5, 40}, 15102},          KnownGpu{"V100", {7, 0, 80}, 16151},
    KnownGpu{"RTX 3080", {8, 6, 68}, 10009},    KnownGpu{"RTX 3090", {8, 6, 82}, 24126},
    KnownGpu{"RTX 4090", {8, 9, 128}, 24082},   KnownGpu{"A100", {8, 0, 108}, 40326},
    KnownGpu{"A100 80GB", {8, 0, 108}, 81050},  KnownGpu{"L4", {8, 9, 58}, 22563},
    KnownGpu{"H100", {9, 0, 132}, 81079, true}, KnownGpu{"H200", {9, 0, 132}, 143155},
};

std::string Plain(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

}  // namespace

std::span<const KnownGpu> KnownGpus() { return kGpus; }

const KnownGpu* FindGpu(std::string_view name) {
  const auto found =
      std::ranges::find(kGpus, Plain(name), [](const KnownGpu& gpu) { return Plain(gpu.name); });
  return found == kGpus.end() ? nullptr : &*found;
}

}  // namespace lockstep
