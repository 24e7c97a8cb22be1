#include "models/losses/losses.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace lockstep {

at::Tensor OutputFor(const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() == target.dim() && output.size(-1) > target.size(-1)) {
    return OutputFor(output.narrow(-1, 0, target.size(-1)), target);
  }
  if (output.sizes() == target.sizes()) return output.to(at::kFloat);
  throw UsageError("the model puts out [{}] where the targets are [{}]",
                   fmt::join(output.sizes(), ", "), fmt::join(target.sizes(), ", "));
}

at::Tensor FocalShare(const at::Tensor& logs, double gamma) {
  // The lower limit keeps the gradient of pow() finite if gamma is below 1.
  constexpr double kLeast = 1e-12;
  return (-at::expm1(-logs)).clamp_min(kLeast).pow(gamma);
}

at::Tensor LogitRows(const at::Tensor& output, const at::Tensor& target, Task task) {
  if (task != Task::kSegmentation) return output.flatten(0, -2);
  if (output.dim() != 4 || output.size(0) != target.size(0) ||
      output.sizes().slice(2) != target.sizes().slice(1)) {
    throw UsageError("the model puts out [{}] where the masks are [{}]",
                     fmt::join(output.sizes(), ", "), fmt::join(target.sizes(), ", "));
  }
  // Each pixel becomes a row, because LibTorch's loss of whole images has no deterministic kernel on a GPU.
  return output.movedim(1, -1).flatten(0, -2);
}

}  // namespace lockstep
