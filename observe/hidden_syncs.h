// Finds the operations that make the host wait for the GPU, such as item() and nonzero().
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// Marks a forward pass of the model on this thread: the pass begins with the constructor and ends with the destructor.
class ForwardPass {
 public:
  ForwardPass();
  ~ForwardPass();
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
};

// Calls `act`, and returns the names of the operations in which the host waited for the GPU during this thread's
// forward passes, for example "aten::item". Each name occurs once, and the names are in the order of their first waits.
// Waits outside of a forward pass do not count, because the model does not cause them. PyTorch warns of the same
// operations after torch.cuda.set_sync_debug_mode("warn").
std::vector<std::string> HiddenSyncs(const std::function<void()>& act);

}  // namespace lockstep
