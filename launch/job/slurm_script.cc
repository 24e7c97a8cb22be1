#include "launch/job/slurm_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/shell_text.h"
#include "launch/job/job_size.h"

namespace lockstep {
namespace {

// srun's exit status is the largest of the ranks' statuses, so it must not end ranks itself, because these would then
// have the status of a signal: the ranks of one job end within seconds of each other, with the same status. If a rank
// dies, the watchdogs of the others end them. Only a rank that dies before all have met leaves ranks without a
// watchdog; srun ends those a minute later. Both options are given, because a site may have other defaults.
constexpr char kSrun[] = "srun --mpi=pmix --kill-on-bad-exit=0 --wait=60";

constexpr char kHead[] = R"(#!/bin/bash
# Trains {what} on {nodes}. Submit it with sbatch, from the folder that it
# was made in. It asks for nothing but the program, on a disk that all nodes see, and mpirun.
# {limit} before its time is over its state is saved and it is put into the queue again, where it goes on.
# To end it for good: lockstep stop RUN, or scancel.
{options}
)";

constexpr char kBody[] = R"(
program={program}
{configs}
{start}

# Slurm sends USR2 before the time is over, TERM with scancel and when it is. The ranks get TERM from Slurm.
warned= ended= interrupted=
trap 'warned=1 interrupted=1; kill -USR2 "$job" 2>/dev/null' USR2
trap 'ended=1 interrupted=1' TERM

"${{start[@]}}" &
job=$!
[[ -z $warned ]] || kill -USR2 "$job"
interrupted=1
while [[ -n $interrupted ]]; do
  interrupted=
  wait "$job"
  code=$?
  ((code == 127)) || status=$code # 127: it had ended before the signal came
done

# 75: its state is saved, start it again. 140: the signal came before there was one.
if ((status == 75 || status == 140)) && [[ -z $ended || -n $warned ]]; then
  trap - TERM
  scontrol requeue "$SLURM_JOB_ID" && sleep 60 # within which Slurm ends this script
fi
exit "$status"
)";

std::string DurationInWords(int seconds) {
  if (seconds % 60 != 0) return fmt::format("{} s", seconds);
  return seconds == 60 ? "A minute" : fmt::format("{} minutes", seconds / 60);
}

}  // namespace

std::string SlurmScript(const SlurmJob& job) {
  const int ranks_per_node = RanksOfEach(job.ranks_per_node, job.gpus);
  const bool array = job.configs.size() > 1;
  std::vector<std::string> options{fmt::format("--job-name={}", ShellText({job.name})),
                                   fmt::format("--nodes={}", job.nodes),
                                   fmt::format("--ntasks-per-node={}", ranks_per_node)};
  if (job.gpus > 0) options.push_back(fmt::format("--gpus-per-node={}", job.gpus));
  options.push_back(fmt::format("--time={}", job.time));
  options.push_back(fmt::format("--signal=B:USR2@{}", job.warning_s));
  if (array) options.push_back(fmt::format("--array=0-{}", job.configs.size() - 1));
  options.push_back("--requeue");
  options.push_back("--open-mode=append");
  options.insert(options.end(), job.sbatch.begin(), job.sbatch.end());

  const std::string config = array ? "\"${configs[SLURM_ARRAY_TASK_ID]}\"" : "\"$config\"";
  std::string words;
  for (const std::string& word : job.words) words += " " + ShellText({word});
  const int ranks = job.nodes * ranks_per_node;
  const std::string start =
      job.by_srun ? fmt::format("start=({} \"$program\" train {}{})", kSrun, config, words)
                  : fmt::format("start=(\"$program\" -n {} --restarts {} train {}{})", ranks,
                                job.restarts, config, words);
  std::string configs;
  if (array) {
    configs = fmt::format("configs=({})", ShellText(job.configs));
  } else {
    configs = fmt::format("config={}", ShellText(job.configs));
  }
  return fmt::format(kHead, fmt::arg("what", fmt::join(job.configs, ", ")),
                     fmt::arg("nodes", MachinesInWords(job.nodes, "node", job.gpus)),
                     fmt::arg("limit", DurationInWords(job.warning_s)),
                     fmt::arg("options",
                              "#SBATCH " + fmt::format("{}", fmt::join(options, "\n#SBATCH ")))) +
         fmt::format(kBody, fmt::arg("program", ShellText({job.program})),
                     fmt::arg("configs", configs), fmt::arg("start", start));
}

}  // namespace lockstep
