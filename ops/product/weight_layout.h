// WeightLayout: says whether the weight W of a linear layer is stored as [inputs, outputs] or as [outputs, inputs].
#pragma once

namespace lockstep::ops {

enum class WeightLayout {
  kInputsOutputs,  // Hugging Face's Conv1D: y = x W + b
  kOutputsInputs,  // torch.nn.Linear: y = x W^T + b
};

}  // namespace lockstep::ops
