#include "observe/profile/trace.h"

#include "observe/profile/profile_files.h"
#include "observe/profile/profiler.h"

namespace lockstep {

void Trace(OutputTarget& target, const std::string& path, at::Device device,
           const std::function<void()>& act, const std::function<NodesOfGraphs()>& graphs) {
  Profiler profiler(device);
  profiler.Start();
  act();
  nlohmann::json trace = profiler.Stop();
  AddPlaces(trace, graphs(), device.is_cuda());
  target.Write([&](const AppendBytes& append) { AppendTrace(trace, path, append); });
}

}  // namespace lockstep
