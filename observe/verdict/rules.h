// Rules: a table of known problems that a run's measurements can show. Each rule says from measurements what is wrong
// and how to fix it.
//
// Promise: a rule says nothing about a quantity that was not measured, and nothing about a healthy run. A rule about
// low use therefore applies only if the verdict (observe/verdict/verdict.h) has found the cause of a loss.
//
// A new rule is a function and a line of kRules in rules.cc.
//   low_use, middling_use      the GPU computes for less than half (low_use) or for half to 80 % of the time
//   both_low                   the GPU and the cores are both idle for more than half of the time
//   cores_idle                 samples are late while cores are idle
//   transfers                  copies to the GPU take much of the time
//   gpu_memory_full            more than 90 % of the GPU's memory is used
//   gpu_memory_idle            a busy GPU computes far below its peak and has used less than 30 % of its memory
//   memory_grows               the process's memory keeps growing
//   device_memory_grows        the tensors on the GPU keep growing
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
  std::string place;  // where most of these tensors were allocated: "the forward pass of fc1"
};

// How the memory of the training device grows.
struct MemoryGrowth {
  bool on_gpu = false;
  KeptTensors kept{};             // tensors on this device that one of the last steps kept
  double device_bytes = 0;        // bytes by which the GPU's tensors grow per step; 0: none
  double device_steps_left = -1;  // the steps until the GPU's memory is full; -1: unknown
};

// The measurements of a run so far. A negative number means that the value is not known.
struct Signs {
  SecondsReport seconds;
  double gpu_memory_share = -1;  // the used fraction of the fullest GPU's memory
  double cpu_use = -1;           // the used fraction of all cores
  double memory_growth = 0;      // growth of the host's memory in bytes per step; 0: no growth
  double memory_left = -1;       // unused bytes of the host's memory
  bool is_fp32 = false;          // whether matrix products are computed in FP32
  std::string
      faster_precision;  // a value of the config field `precision` that uses tensor cores; empty: none
  std::vector<std::string>
      syncs;  // the operations of a step's forward pass that waited for the GPU
  int64_t accumulation = 1;
  MemoryGrowth growth{};
};

std::vector<RunFinding> FindingsOf(const Signs& signs);

}  // namespace lockstep
