#include "trainer/run/sinks.h"

#include "observe/sinks/log_sink.h"
#include "observe/sinks/terminal_sink.h"

namespace lockstep {

void AddSinks(RunFolder* folder, bool live, int rank, RunEvents& events) {
  if (folder == nullptr) {
    events.Add(NewRankWarningSink(rank));
    return;
  }
  events.Add(NewLogSink([folder](const nlohmann::ordered_json& line) { folder->Log(line); }));
  events.Add(NewTerminalSink(live));
}

}  // namespace lockstep
