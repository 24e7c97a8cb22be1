// The memory layout of a linear layer's weight.
#pragma once

namespace lockstep::ops {

enum class WeightLayout {
  kInputsOutputs,  // Hugging Face's Conv1D: y = x W + b
  kOutputsInputs,  // torch.nn.Linear: y = x W^T + b
};

}  // namespace lockstep::ops
