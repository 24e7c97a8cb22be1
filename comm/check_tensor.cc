#include "comm/check_tensor.h"

#include "base/error.h"

namespace lockstep {

void CheckSendable(const at::Tensor& tensor, at::DeviceType device) {
  if (tensor.device().type() != device) {
    throw BugError("collective on a tensor of {} in a communicator of {}", tensor.device().str(),
                   c10::DeviceTypeName(device, true));
  }
  if (!tensor.is_contiguous()) throw BugError("collective on a tensor that is not contiguous");
}

void CheckParts(const at::Tensor& whole, const at::Tensor& part, int ranks, at::DeviceType device) {
  CheckSendable(whole, device);
  CheckSendable(part, device);
  if (whole.scalar_type() != part.scalar_type()) {
    throw BugError("collective on tensors of {} and {}", c10::toString(whole.scalar_type()),
                   c10::toString(part.scalar_type()));
  }
  if (whole.numel() != ranks * part.numel()) {
    throw BugError("collective of {} ranks on {} elements in parts of {}", ranks, whole.numel(),
                   part.numel());
  }
}

}  // namespace lockstep
