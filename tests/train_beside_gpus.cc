// Trains on the CPU as `lockstep train` does, but reads the figures of GPUs as if its ranks computed on them. With this
// program, tests check a run's GPU readings on a machine without a GPU.
//
//   train_beside_gpus CONFIG GPU,GPU [FIELD=VALUE ...]     GPU: a UUID; the first is the GPU of this process
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/say.h"
#include "comm/together.h"
#include "config/config.h"
#include "launch/job/job.h"
#include "models/built_in/built_in.h"
#include "trainer/run/extensions.h"
#include "trainer/run/trainer.h"

namespace {

lockstep::StopRequest TrainBesideGpus(const std::vector<std::string>& words) {
  const lockstep::config::Config config =
      lockstep::LoadConfig(words.at(0), {words.begin() + 2, words.end()});
  const lockstep::Extensions extensions{.models = lockstep::BuiltInModels()};
  lockstep::Job job;
  const lockstep::World world = job.Connect(config.device());
  lockstep::TrainOptions options{
      .version = "0",
      .live = isatty(STDOUT_FILENO) != 0,
      .command_start_s = lockstep::SecondsSinceBoot(),
      .leave = [&job](const std::exception& exception) { job.Fail(lockstep::ErrorOf(exception)); }};
  options.gpu_users.emplace();
  std::istringstream uuids(words.at(1));
  for (std::string uuid; std::getline(uuids, uuid, ',');) {
    const auto rank = static_cast<int>(options.gpu_users->size());
    options.gpu_users->push_back({.uuid = uuid, .pid = rank == 0 ? getpid() : 0, .rank = rank});
  }
  const lockstep::StopRequest stop = lockstep::Train(config, extensions, world, options);
  job.Leave();
  return stop;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool stopped = TrainBesideGpus({argv + 1, argv + argc}) != lockstep::StopRequest::kNone;
    return static_cast<int>(stopped ? lockstep::ExitStatus::kStopped : lockstep::ExitStatus::kDone);
  } catch (const std::exception& exception) {
    lockstep::PrintError(exception.what());
    return EXIT_FAILURE;
  }
}
