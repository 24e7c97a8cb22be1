// How many ranks a job has, and its machines in words, for the texts with which a cluster starts it
// (launch/job/slurm_script.h, launch/job/kubernetes_manifest.h).
#pragma once

#include <string>

namespace lockstep {

// Returns the number of ranks of each machine: `asked`, or if `asked` is 0 one for each of the machine's `gpus`, or one
// if it has no GPUs.
int RanksOfEach(int asked, int gpus);

// Returns "one node", "one node with 8 GPUs" or "2 nodes with 8 GPUs each", if `noun` is "node". `gpus` is the number of
// GPUs of each machine.
std::string MachinesInWords(int machines, const std::string& noun, int gpus);

}  // namespace lockstep
