#include "launch/machine/gpu_checks.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr double kGib = 1 << 30;
constexpr int64_t kCopied = int64_t{256} << 20;  // bytes of each copy
constexpr int kCopies = 8;

// A copy is slow if its speed is less than a share of the hardware's maximum: kLeastMemory for copies within the GPU's
// memory, kLeastPcie for copies over PCIe, and kLeastNvlink for copies over NVLink. (Healthy machines reach 0.85 to 0.9
// within the GPU's memory and over PCIe, and 0.75 over NVLink.)
constexpr double kLeastMemory = 0.7;
constexpr double kLeastPcie = 0.5;
constexpr double kLeastNvlink = 0.5;

// Copies `from` to `to` nine times, and returns the speed of the last eight copies in GB/s.
double CopyGbs(const at::Tensor& to, const at::Tensor& from) {
  const at::cuda::CUDAStream stream = at::cuda::getCurrentCUDAStream();
  const auto copy = [&] {
    C10_CUDA_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                   cudaMemcpyDefault, stream));
  };
  at::cuda::CUDAEvent begin(cudaEventDefault);
  at::cuda::CUDAEvent end(cudaEventDefault);
  copy();
  begin.record(stream);
  for (int i = 0; i < kCopies; ++i) copy();
  end.record(stream);
  end.synchronize();
  return kCopies * static_cast<double>(from.nbytes()) / begin.elapsed_time(end) * 1e-6;
}

// Returns a speed and its maximum as text, for example "512 GB/s of 614".
std::string OfText(double gbs, double most) {
  return most > 0 ? fmt::format("{:.0f} GB/s of {:.0f}", gbs, most)
                  : fmt::format("{:.0f} GB/s", gbs);
}

// Returns the bandwidth of the GPU's memory, in GB/s; 0 if it is unknown.
double MemoryGbs(at::Device gpu) {
  int khz = 0;
  int bits = 0;
  if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, gpu.index()) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, gpu.index()) != cudaSuccess) {
    return 0;
  }
  return 2.0 * khz * bits / 8 * 1e-6;  // two transfers in each clock cycle
}

Finding Wrong(const std::string& check, const std::string& way) {
  return {.check = check,
          .state = State::kFail,
          .figure = fmt::format("what was copied {} is not what arrived", way),
          .advice = "the hardware is broken: take another GPU, and see nvidia-smi -q -d ECC"};
}

Finding CheckPcie(const at::Tensor& on_gpu, const GpuCondition* condition) {
  const at::Tensor on_host =
      at::empty(on_gpu.sizes(), on_gpu.options().device(at::kCPU).pinned_memory(true));
  const double from = CopyGbs(on_host, on_gpu);
  const at::Tensor again = at::empty_like(on_gpu);
  const double to = CopyGbs(again, on_host);
  if (!at::equal(again, on_gpu)) return Wrong("pcie", "to the host and back");
  const double most = condition == nullptr
                          ? 0
                          : PcieGbs(condition->most_pcie_generation, condition->most_pcie_lanes);
  const double least = std::min(from, to);
  Finding finding{.check = "pcie",
                  .state = StateOf(least, most, kLeastPcie),
                  .figure = fmt::format("to the GPU {:.1f}, from it {}", to, OfText(from, most)),
                  .value = least,
                  .unit = "GB/s"};
  if (condition != nullptr && condition->pcie_lanes < condition->most_pcie_lanes) {
    finding.state = State::kWarn;
    finding.figure +=
        fmt::format(", {} of {} lanes", condition->pcie_lanes, condition->most_pcie_lanes);
    finding.advice = "the slot gives fewer lanes than the GPU has: see the board's manual";
  } else if (finding.state == State::kWarn) {
    finding.advice = "does another process use the link, or does this one run far from it (cores)?";
  }
  return finding;
}

// Checks copies from the GPU that holds `on_gpu` to the visible GPU with the next number (after the last GPU: to the
// first).
Finding CheckPeer(const at::Tensor& on_gpu, const GpuCondition* condition) {
  const auto other =
      static_cast<c10::DeviceIndex>((on_gpu.device().index() + 1) % c10::cuda::device_count());
  int direct = 0;
  C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&direct, on_gpu.device().index(), other));
  const at::Tensor there =
      at::empty(on_gpu.sizes(), on_gpu.options().device(at::Device(at::kCUDA, other)));
  if (direct != 0) {
    const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) (void)cudaGetLastError();
  }
  const double gbs = CopyGbs(there, on_gpu);
  if (!at::equal(there.to(on_gpu.device()), on_gpu)) return Wrong(kGpuToGpu, "to another GPU");
  const double most = LinkGbs(condition);
  Finding finding{.check = kGpuToGpu,
                  .state = StateOf(gbs, most, kLeastNvlink),
                  .figure = OfText(gbs, most),
                  .value = gbs,
                  .unit = "GB/s"};
  if (direct == 0) finding.figure += ", through the host";
  if (condition != nullptr && condition->active_nvlinks < condition->nvlinks &&
      condition->active_nvlinks > 0) {
    finding.state = State::kWarn;
    finding.figure +=
        fmt::format(", {} of {} NVLinks", condition->active_nvlinks, condition->nvlinks);
    finding.advice = "some links are down: see nvidia-smi nvlink -s";
  } else if (finding.state == State::kWarn) {
    finding.advice = "see nvidia-smi topo -m, and whether another process uses the links";
  }
  return finding;
}

}  // namespace

double LinkGbs(const GpuCondition* condition) {
  return condition == nullptr ? 0 : condition->active_nvlinks * condition->nvlink_gbs;
}

Finding CheckGpu(at::Device gpu, const GpuCondition* condition) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(gpu.index());
  Finding finding{.check = "gpu",
                  .figure = fmt::format("{}, {:.1f} GiB", properties.name,
                                        static_cast<double>(properties.totalGlobalMem) / kGib)};
  if (condition == nullptr) return finding;
  // The driver and this process's own CUDA context may together take kOwn plus 5 % of the GPU's memory.
  constexpr double kOwn = 2;  // GiB
  if (condition->ecc_errors > 0) {
    finding.state = State::kFail;
    finding.figure += fmt::format(", {} uncorrected memory errors", condition->ecc_errors);
    finding.advice = "nvidia-smi --gpu-reset, and if they come again have it replaced";
  } else if (!condition->slowed_by.empty()) {
    finding.state = State::kWarn;
    finding.figure +=
        fmt::format(", slowed down by {}, {} C", condition->slowed_by, condition->celsius);
    finding.advice = "see nvidia-smi -q -d PERFORMANCE";
  } else if (condition->used_gib > 0.05 * condition->total_gib + kOwn) {
    finding.state = State::kWarn;
    finding.figure += fmt::format(", {:.1f} GiB in use", condition->used_gib);
    finding.advice = "end what else uses it (nvidia-smi), or expect less memory and speed";
  }
  return finding;
}

std::vector<Finding> CheckTransfers(at::Device gpu, const GpuCondition* condition) {
  const c10::cuda::CUDAGuard guard(gpu);
  std::vector<Finding> findings;
  // The pattern consists of ascending numbers, so that data copied to a wrong place is noticed.
  const at::Tensor pattern =
      at::arange(kCopied / 4, at::TensorOptions().dtype(at::kInt).device(gpu));
  const at::Tensor copy = at::empty_like(pattern);
  const double most = MemoryGbs(gpu);
  const double gbs = 2 * CopyGbs(copy, pattern);  // factor 2: each byte is read and written
  if (!at::equal(copy, pattern)) {
    findings.push_back(Wrong("gpu memory", "within the GPU's memory"));
  } else {
    const State state = StateOf(gbs, most, kLeastMemory);
    findings.push_back(
        {.check = "gpu memory",
         .state = state,
         .figure = OfText(gbs, most),
         .advice = state == State::kOk ? "" : "does another process use the GPU (nvidia-smi)?",
         .value = gbs,
         .unit = "GB/s"});
  }
  findings.push_back(CheckPcie(pattern, condition));
  if (c10::cuda::device_count() > 1) findings.push_back(CheckPeer(pattern, condition));
  return findings;
}

}  // namespace lockstep
