// The measurements of `lockstep bench`.
#pragma once

#include <string>
#include <vector>

#include "comm/collective_bench.h"
#include "launch/job/mpirun.h"
#include "trainer/config/config.pb.h"
#include "trainer/run/extensions.h"
#include "trainer/run/trainer.h"
#include "trainer/step/world.h"

namespace lockstep {

struct BenchOptions {
  std::string dtype = "float32";  // of a collective
  int64_t bytes = 0;              // of a collective; 0: several sizes
  int steps = 50;                 // timed steps
  std::string images;             // of the loader: folder of images, or of shards
  int64_t batch = 256;            // of the loader, on each rank
  int threads = -1;               // of the loader; -1: chosen from the cores
  config::Images::Decode decode = config::Images::AUTO;  // of the loader
  std::string trace;  // of a step: file for a Chrome trace; empty: none
  bool json = false;  // a line of JSON for each measurement instead of a table
  bool weak = false;  // scaling: the same batch for each rank, not for all together
};

// Times a collective and prints it on rank 0. Every rank must call it. Throws Error: kUsage for an
// unknown dtype or a single rank, kBug where a result is wrong.
void BenchCollective(Op op, const BenchOptions& bench, const World& world);

// Times the loader on an image folder, random crops of 224 x 224 to normalised numbers on the device,
// and prints on rank 0 where the time goes. Every rank must call it. Throws Error (kData, kUsage).
void BenchLoader(const BenchOptions& bench, const World& world);

// Times steps of `config` and prints what it finds on rank 0. Every rank must call it.
void BenchStep(const config::Config& config, const BenchOptions& bench,
               const Extensions& extensions, const World& world, const TrainOptions& options);

// Runs `lockstep bench step ARGUMENTS` (program and arguments given) on 1, 2, 4, ... and `ranks` ranks on
// `machines` and prints how the step's time changes. `global_batch`: the config's. Returns the exit status of the
// first run that fails. Throws Error.
int BenchScaling(int ranks, const Machines& machines, int64_t global_batch,
                 const std::string& program, const std::vector<std::string>& arguments,
                 const BenchOptions& bench);

}  // namespace lockstep
