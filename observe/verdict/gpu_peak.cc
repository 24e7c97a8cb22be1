#include "observe/verdict/gpu_peak.h"

namespace lockstep {
namespace {

// The peaks of a GPU, in TFLOP/s; 0: the GPU does not have this arithmetic.
struct Peak {
  std::string_view name;  // a part of the GPU's name
  double fp32;
  double tf32;
  double bf16;
  double fp16;
};

// PeakFlops() uses the first entry whose `name` is contained in the GPU's name.
constexpr Peak kPeaks[] = {
    {"H100 NVL", 60, 417, 835, 835},
    {"H100 PCIe", 51, 378, 756, 756},
    {"H100", 67, 494, 989, 989},
    {"H200 NVL", 60, 417, 835, 835},
    {"H200", 67, 494, 989, 989},
    {"B200", 75, 1125, 2250, 2250},
    {"A100", 19.5, 156, 312, 312},
    {"A800", 19.5, 156, 312, 312},
    {"NVIDIA A40", 37.4, 74.8, 149.7, 149.7},
    {"NVIDIA A30", 10.3, 82, 165, 165},
    {"NVIDIA A10G", 31.5, 35, 70, 70},
    {"NVIDIA A10", 31.2, 62.5, 125, 125},
    {"L40S", 91.6, 183, 362, 362},
    {"NVIDIA L40", 90.5, 90.5, 181, 181},
    {"NVIDIA L4", 30.3, 60, 121, 121},
    {"V100", 15.7, 0, 0, 125},
    {"Tesla T4", 8.1, 0, 0, 65},
    {"RTX 5090", 104.8, 104.8, 209.5, 209.5},
    {"RTX 4090", 82.6, 82.6, 165.2, 165.2},
    {"RTX 4080", 48.7, 48.7, 97.5, 97.5},
    {"RTX 3090", 35.6, 35.6, 71, 71},
    {"RTX 3080", 29.8, 29.8, 59.5, 59.5},
    {"RTX A6000", 38.7, 77.4, 154.8, 154.8},
    {"RTX 6000 Ada", 91.1, 182, 364, 364},
    {"TITAN RTX", 16.3, 0, 0, 130},
    {"RTX 2080 Ti", 13.4, 0, 0, 53.8},
};

}  // namespace

double PeakFlops(std::string_view gpu, Arithmetic arithmetic) {
  constexpr double kTera = 1e12;
  for (const Peak& peak : kPeaks) {
    if (gpu.find(peak.name) == std::string_view::npos) continue;
    switch (arithmetic) {
      case Arithmetic::kFp32:
        return kTera * peak.fp32;
      case Arithmetic::kTf32:
        return kTera * peak.tf32;
      case Arithmetic::kBf16:
        return kTera * peak.bf16;
      case Arithmetic::kFp16:
        return kTera * peak.fp16;
    }
  }
  return 0;
}

}  // namespace lockstep
