#include "observe/verdict/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "observe/verdict/verdict.h"

namespace lockstep {
namespace {

constexpr double kMebibyte = 1 << 20;

struct Advice {
  std::string words;
  std::string remedy;
};

bool HasLoss(const Signs& signs) { return signs.seconds.cause.has_value(); }

double ShareOf(const Signs& signs, Loss loss) {
  return signs.seconds.wall_s > 0 ? signs.seconds.lost(loss) / signs.seconds.wall_s : 0;
}

Advice LowUseAdvice(const Signs& signs) {
  return {fmt::format("a kernel ran on the GPU in {:.0f} % of the time; {:.0f} % is lost to {}",
                      100 * signs.seconds.busy_share, 100 * ShareOf(signs, *signs.seconds.cause),
                      WordsOf(*signs.seconds.cause)),
          signs.seconds.remedy};
}

constexpr double kLowUse = 0.5;
constexpr double kGoodUse = 0.8;

std::optional<Advice> LowUse(const Signs& signs) {
  if (signs.seconds.busy_share < 0 || signs.seconds.busy_share >= kLowUse || !HasLoss(signs))
    return std::nullopt;
  return LowUseAdvice(signs);
}

std::optional<Advice> MiddlingUse(const Signs& signs) {
  if (signs.seconds.busy_share < kLowUse || signs.seconds.busy_share >= kGoodUse || !HasLoss(signs))
    return std::nullopt;
  return LowUseAdvice(signs);
}

std::optional<Advice> BothLow(const Signs& signs) {
  const bool are_low = signs.seconds.busy_share >= 0 && signs.seconds.busy_share < kLowUse &&
                       signs.cpu_use >= 0 && signs.cpu_use < kLowUse;
  if (!are_low || !HasLoss(signs)) return std::nullopt;
  return Advice{fmt::format("GPU and cores are both idle (used {:.0f} % and {:.0f} %): they wait, "
                            "mostly for {}",
                            100 * signs.seconds.busy_share, 100 * signs.cpu_use,
                            WordsOf(*signs.seconds.cause)),
                signs.seconds.remedy};
}

std::optional<Advice> CoresIdle(const Signs& signs) {
  const double late = ShareOf(signs, Loss::kReading) + ShareOf(signs, Loss::kDecoding);
  if (signs.cpu_use < 0 || signs.cpu_use >= kLowUse || late < kLeastShare || !HasLoss(signs)) {
    return std::nullopt;
  }
  return Advice{fmt::format("samples are late in {:.0f} % of the time while {:.0f} % of the cores "
                            "are idle",
                            100 * late, 100 * (1 - signs.cpu_use)),
                signs.seconds.remedy};
}

std::optional<Advice> Transfers(const Signs& signs) {
  constexpr double kMuch = 0.1;
  const double share = ShareOf(signs, Loss::kCopying);
  if (share < kMuch) return std::nullopt;
  return Advice{fmt::format("copies to the GPU take {:.0f} % of the time", 100 * share),
                "smaller samples (uint8 pixels), or loader.slots higher"};
}

std::optional<Advice> GpuMemoryFull(const Signs& signs) {
  constexpr double kFull = 0.9;
  if (signs.gpu_memory_share <= kFull) return std::nullopt;
  return Advice{fmt::format("{:.0f} % of the GPU's memory is used: longer samples or another "
                            "process may not fit",
                            100 * signs.gpu_memory_share),
                fmt::format("accumulation: {} -> {}", signs.accumulation, 2 * signs.accumulation)};
}

std::optional<Advice> GpuMemoryIdle(const Signs& signs) {
  constexpr double kBusy = 0.9;
  constexpr double kIdle = 0.3;
  constexpr double kFarBelowPeak = 0.2;
  if (signs.seconds.busy_share < kBusy || signs.gpu_memory_share < 0 ||
      signs.gpu_memory_share >= kIdle || signs.seconds.flops_share < 0 ||
      signs.seconds.flops_share >= kFarBelowPeak || signs.is_fp32) {
    return std::nullopt;
  }
  return Advice{fmt::format("the GPU is busy but computes at {:.0f} % of its peak, and {:.0f} % of "
                            "its memory is free: the batch is small for it",
                            100 * signs.seconds.flops_share, 100 * (1 - signs.gpu_memory_share)),
                signs.accumulation > 1 ? fmt::format("accumulation: {} -> 1", signs.accumulation)
                                       : "global_batch higher, where the learning rate allows it"};
}

constexpr char kFreeTensors[] =
    "keep no tensor after its step, and of a loss or an output that is kept only detach() or a "
    "number";

// Returns whether the tensors that a step keeps explain at least half of the growth of memory.
bool Explains(const KeptTensors& kept, double growth) {
  constexpr double kMost = 0.5;
  return kept.is_known && static_cast<double>(kept.bytes) >= kMost * growth;
}

std::optional<Advice> MemoryGrows(const Signs& signs) {
  if (signs.memory_growth <= 0) return std::nullopt;
  std::string words = fmt::format("the process's memory grows by {:.3g} MiB a step",
                                  signs.memory_growth / kMebibyte);
  const KeptTensors& kept = signs.growth.kept;
  const bool in_tensors = !signs.growth.on_gpu && Explains(kept, signs.memory_growth);
  if (in_tensors) {
    words += fmt::format(", in tensors that {} allocates and keeps", kept.place);
  } else if (!signs.growth.on_gpu && kept.is_known) {
    words += ", not in tensors of its steps";
  }
  if (signs.memory_left >= 0) {
    words += fmt::format(", and is full after {:.0f} more steps",
                         signs.memory_left / signs.memory_growth);
  }
  return Advice{std::move(words),
                in_tensors ? kFreeTensors
                           : "the model or the data set keeps what it no longer needs: free it in "
                             "each step"};
}

std::optional<Advice> DeviceMemoryGrows(const Signs& signs) {
  const MemoryGrowth& growth = signs.growth;
  if (growth.device_bytes <= 0) return std::nullopt;
  std::string words = fmt::format("the tensors on the GPU grow by {:.3g} MiB a step",
                                  growth.device_bytes / kMebibyte);
  const bool in_steps = Explains(growth.kept, growth.device_bytes);
  if (in_steps) {
    words += fmt::format(", in those that {} allocates and keeps", growth.kept.place);
  } else if (growth.kept.is_known) {
    words += ", outside its steps (evaluation, checkpoints)";
  }
  if (growth.device_steps_left >= 0) {
    words += fmt::format(", and fill it after {:.0f} more steps", growth.device_steps_left);
  }
  return Advice{std::move(words), kFreeTensors};
}

std::optional<Advice> Synchronizations(const Signs& signs) {
  if (signs.syncs.empty()) return std::nullopt;
  return Advice{
      fmt::format("the model's forward pass waits for the GPU in {}", fmt::join(signs.syncs, ", ")),
      "keep values on the GPU (torch.where instead of if, no item()), so that steps can run "
      "as a CUDA graph"};
}

std::optional<Advice> Fp32(const Signs& signs) {
  constexpr double kMuch = 0.3;
  if (!signs.is_fp32 || signs.seconds.flops_share < kMuch || signs.faster_precision.empty()) {
    return std::nullopt;
  }
  return Advice{
      fmt::format("matrix products in FP32 take at least {:.0f} % of a step and do not use "
                  "the GPU's tensor cores",
                  100 * signs.seconds.flops_share),
      "precision: " + signs.faster_precision};
}

struct Rule {
  const char* name;
  std::optional<Advice> (*apply)(const Signs& signs);
};
constexpr Rule kRules[] = {
    {"low_use", LowUse},
    {"middling_use", MiddlingUse},
    {"both_low", BothLow},
    {"cores_idle", CoresIdle},
    {"transfers", Transfers},
    {"gpu_memory_full", GpuMemoryFull},
    {"gpu_memory_idle", GpuMemoryIdle},
    {"memory_grows", MemoryGrows},
    {"device_memory_grows", DeviceMemoryGrows},
    {"synchronizations", Synchronizations},
    {"fp32", Fp32},
};

}  // namespace

std::vector<RunFinding> FindingsOf(const Signs& signs) {
  std::vector<RunFinding> findings;
  for (const Rule& rule : kRules) {
    std::optional<Advice> advice = rule.apply(signs);
    if (!advice) continue;
    findings.push_back({rule.name, std::move(advice->words), std::move(advice->remedy)});
  }
  return findings;
}

}  // namespace lockstep
