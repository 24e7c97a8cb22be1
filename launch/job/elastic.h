// Elastic: after a job has failed, finds the machines of --hosts, or the GPUs of this machine, that still work, so that
// the job can go on with them.
//
// How: if the job has --hosts, mpirun starts a process on each machine of the list, which shows that the machine can be
// reached. Otherwise a separate process for each GPU of this machine copies data on the GPU and compares the copy. The
// checks run at the same time, with a time limit, because a broken GPU or machine may hang instead of reporting an
// error.
//
// what can fail -> what the caller sees -> the test that shows it
//   a GPU is broken -> it is left out -> tests/restart_test.py, test_a_gpu_that_breaks
//   a machine is lost -> it is left out -> tests/network_test.py
//   no machine or GPU works -> the functions return empty lists -> launch/job/elastic_test.cc
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Runs all `commands` at the same time, and returns the indices of the commands that end with status 0 within `limit_s`
// seconds. Kills the commands that still run after that time.
std::vector<size_t> WhichSucceed(const std::vector<std::vector<std::string>>& commands,
                                 double limit_s);

// Returns the GPUs that this process may use, in the form of entries of CUDA_VISIBLE_DEVICES.
std::vector<std::string> GpusHere();

// Returns those of `gpus` that work, according to ProbeGpu(). `program` is the path of this program.
std::vector<std::string> WorkingGpus(const std::vector<std::string>& gpus,
                                     const std::string& program);

// Returns those of `hosts` ("node1:8,node2:8") on which mpirun can start a process.
std::string ReachableHosts(const std::string& hosts);

// Returns one line that says why the ranks on `hosts` did not meet.
std::string WhyNoStart(const std::string& hosts);

// kProbeGpu is the name of the command that WorkingGpus() runs for each GPU. ProbeGpu() does the work of that command,
// and returns its exit status: 0 if the first visible GPU works.
inline constexpr char kProbeGpu[] = "probe-gpu";
int ProbeGpu();

}  // namespace lockstep
