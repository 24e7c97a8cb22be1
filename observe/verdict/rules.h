// Rules: what users look for in a run's readings, as a table. Each rule says from measurements what is wrong and what
// mends it.
//
// Promise: a rule says nothing about a quantity that was not measured, and nothing about a run that is in order: a rule
// about low use asks for a loss that has a cause (observe/verdict/verdict.h).
//
// A new rule is a function and a line of kRules in rules.cc.
//   low_use, middling_use      the GPU computes less than half, or less than 80 %, of the time
//   both_low                   neither the GPU nor the cores have much to do
//   cores_idle                 samples are late while cores are idle
//   transfers                  copies to the GPU take much of the time
//   gpu_memory_full            more than 90 % of the GPU's memory is used
//   gpu_memory_idle            the GPU's memory is idle while a busy GPU computes far below its peak
//   memory_grows               the process's memory grows without an end
//   device_memory_grows        the tensors on the GPU grow without an end
//   synchronizations           the model waits for the GPU in its forward pass
//   fp32                       matrix products do not use the tensor cores, and take much of the time
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/verdict/seconds_report.h"

namespace lockstep {

// Tensors that a step has allocated and not freed.
struct KeptTensors {
  bool is_known = false;
  int64_t bytes = 0;
  std::string place;  // where it has allocated the most of them: "the forward pass of fc1"
};

// How the memory of the device that trains grows.
struct MemoryGrowth {
  bool on_gpu = false;
  KeptTensors kept{};             // on this device, in one of the last steps
  double device_bytes = 0;        // per step, of the GPU's tensors; 0: they do not grow
  double device_steps_left = -1;  // after so many more steps the GPU is full
};

// The measurements of a run so far. Negative numbers are unknown.
struct Signs {
  SecondsReport seconds;
  double gpu_memory_share = -1;  // the used fraction of the fullest GPU's memory
  double cpu_use = -1;           // the used fraction of all cores
  double memory_growth = 0;      // bytes of the host's memory per step; 0: it does not grow
  double memory_left = -1;       // bytes of the host's memory that nobody uses
  bool is_fp32 = false;          // whether matrix products are computed in FP32
  std::string
      faster_precision;  // a value of `precision` for which the GPU has tensor cores; empty: none
  std::vector<std::string>
      syncs;  // the operations of a step's forward pass that waited for the GPU
  int64_t accumulation = 1;
  MemoryGrowth growth{};
};

std::vector<RunFinding> FindingsOf(const Signs& signs);

}  // namespace lockstep
