// Finds the operations that make the host wait for the GPU, such as item() and nonzero().
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// Calls `act`, and returns the names of the operations of this thread in which the host waited for the GPU, each once and
// in the order in which they came, for example "aten::item". It is what torch.cuda.set_sync_debug_mode("warn") shows.
std::vector<std::string> HiddenSyncs(const std::function<void()>& act);

}  // namespace lockstep
