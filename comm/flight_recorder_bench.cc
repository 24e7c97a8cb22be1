// Measures the time that the flight record adds to one collective. The limit is 5 us, which is 0.5 % of a training step
// of 1 ms.

#include <benchmark/benchmark.h>

#include "comm/flight_recorder.h"

namespace lockstep {
namespace {

void Record(benchmark::State& state) {
  FlightRecorder recorder;
  const Label label = recorder.MakeLabel("bucket 0: fc.weight, fc.bias");
  for (auto unused : state) {
    recorder.Done(Channel::kNccl, recorder.Enqueued(Channel::kNccl, Op::kAllReduce, 400, label));
  }
}
BENCHMARK(Record);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
