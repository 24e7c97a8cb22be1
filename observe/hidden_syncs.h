// Finds the operations that make the host wait for the GPU, such as item() and nonzero().
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// A forward pass of the model on this thread lasts as long as this object.
class ForwardPass {
 public:
  ForwardPass();
  ~ForwardPass();
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
};

// Calls `act`, and returns the names of the operations of this thread's forward passes in which the host waited for the
// GPU, each once and in the order in which they came, for example "aten::item". Other waits are not the model's.
// PyTorch shows the same with torch.cuda.set_sync_debug_mode("warn").
std::vector<std::string> HiddenSyncs(const std::function<void()>& act);

}  // namespace lockstep
