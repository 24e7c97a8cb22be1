#include "launch/cli/command/examples.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

struct Example {
  const char* command;
  const char* what;
  const char* line;
};

constexpr Example kExamples[] = {
    {"new", "write train.pbtxt for the table of a competition", "new titanic"},
    {"new", "learn another column of a table", "new houses.csv --label price --output price.pbtxt"},
    {"train", "train on two GPUs, or as two processes", "-n 2 train train.pbtxt"},
    {"train", "try another learning rate, in a folder of its own",
     "train train.pbtxt --set optimizer.lr=0.01 --set run_dir=runs/lr-0.01"},
    {"train", "cross-validate with five folds", "train train.pbtxt --folds 5"},
    {"evaluate", "evaluate on the samples that the run held back", "evaluate runs/train"},
    {"evaluate", "evaluate the best checkpoint on other files",
     "evaluate runs/train@best --input test.csv --json"},
    {"predict", "predict a file", "predict runs/train --input new.csv --output labels.csv"},
    {"predict", "predict images with two GPUs", "-n 2 predict runs/photos@best --input photos"},
    {"predict", "write what a competition wants to be sent",
     "predict runs/train --input test.csv --submission sample.csv --output sent.csv"},
    {"config", "print every field with its meaning", "config --template"},
    {"config", "print the whole config that this file gives", "config train.pbtxt --set epochs=3"},
    {"runs", "list the runs in runs", "runs"},
    {"runs", "list those of another folder, for a program", "runs experiments --json"},
    {"compare", "compare two runs", "compare runs/a runs/b"},
    {"compare", "compare two profiles of a run", "compare runs/a@100 runs/a@900"},
    {"watch", "watch a run", "watch runs/train"},
    {"watch", "watch this machine", "watch --once"},
    {"watch", "show all runs to a browser", "watch runs --page --port 9500"},
    {"profile", "profile five steps of the job that trains", "profile runs/train"},
    {"profile", "print a profile that was made before", "profile runs/train@100 --json"},
    {"estimate", "say what fits on a T4", "estimate train.pbtxt --gpu T4"},
    {"estimate", "say what sizes fit on which GPU", "estimate train.pbtxt --table"},
    {"tune", "find the fastest settings in a minute", "tune train.pbtxt"},
    {"tune", "find the learning rate alone", "tune train.pbtxt --only rate --time 120"},
    {"report", "write the page of a run", "report runs/train --output train.html"},
    {"report", "write the page of all runs", "report runs --output all.html"},
    {"flight", "say what each rank did last", "flight runs/train"},
    {"flight", "show more collectives", "flight runs/train --last 100"},
    {"checkpoints", "list a run's checkpoints", "checkpoints runs/train"},
    {"checkpoints", "the same in another folder", "checkpoints experiments/a"},
    {"verify", "check every checkpoint of a run", "verify runs/train"},
    {"verify", "the same in another folder", "verify experiments/a"},
    {"checkpoint", "save the state of a job, which goes on", "checkpoint runs/train"},
    {"checkpoint", "the same in another folder", "checkpoint experiments/a"},
    {"stop", "save the state of a job and end it", "stop runs/train"},
    {"stop", "the same in another folder", "stop experiments/a"},
    {"export", "write the weights of a run", "export runs/train --output weights.safetensors"},
    {"export", "write those of the best checkpoint in half the bytes",
     "export runs/train@best --output half.safetensors --dtype bfloat16"},
    {"average", "the mean of two runs", "average runs/a runs/b --output mean.safetensors"},
    {"average", "the mean of three checkpoints",
     "average runs/a@100 runs/a@200 runs/a@300 --output mean.safetensors"},
    {"slurm", "a job of four GPUs", "slurm train.pbtxt --gpus 4 --time 4:00:00"},
    {"slurm", "a job of two machines in a partition",
     "slurm train.pbtxt --nodes 2 --gpus 8 --time 1-00:00:00 --sbatch=--partition=gpu"},
    {"kubernetes", "a job of two pods with eight GPUs each",
     "kubernetes train.pbtxt --image registry.example/lockstep --workers 2 --gpus 8 "
     "--claim team-disk:/data >job.yaml"},
    {"kubernetes", "a job of one pod without a GPU, in a namespace",
     "kubernetes train.pbtxt --image lockstep --gpus 0 --cpus 8 --claim team-disk:/data "
     "--namespace team"},
    {"prepare images", "shrink images", "prepare images photos small --size 256"},
    {"prepare images", "leave damaged ones out",
     "prepare images photos small --size 256 --bad skip --exif-orientation"},
    {"prepare shards", "put images into tar files", "prepare shards small shards"},
    {"prepare shards", "smaller files in another order",
     "prepare shards small shards --shard-mib 64 --seed 7"},
    {"prepare tokens", "make tokens of bytes", "prepare tokens a.txt b.txt --output text.bin"},
    {"prepare tokens", "make GPT-2's tokens, and hold some back",
     "prepare tokens a.txt --output text.bin --vocab gpt2 --validation-fraction 0.01"},
    {"bundle", "one archive for a machine with a torch wheel", "bundle lockstep.tar.gz"},
    {"bundle", "a wheel that pip installs beside torch", "bundle --wheel ."},
    {"bench allreduce", "all-reduce on two ranks", "-n 2 bench allreduce"},
    {"bench allreduce", "for a program", "-n 2 bench allreduce --json"},
    {"bench reduce-scatter", "reduce-scatter on two ranks", "-n 2 bench reduce-scatter"},
    {"bench reduce-scatter", "for a program", "-n 2 bench reduce-scatter --json"},
    {"bench all-gather", "all-gather on two ranks", "-n 2 bench all-gather"},
    {"bench all-gather", "for a program", "-n 2 bench all-gather --json"},
    {"bench loader", "the loader of a config", "bench loader train.pbtxt"},
    {"bench loader", "the same with files that are read from the disk",
     "bench loader train.pbtxt --cold --json"},
    {"bench scaling", "one rank beside four", "-n 4 bench scaling train.pbtxt"},
    {"bench scaling", "with a batch for each rank", "-n 4 bench scaling train.pbtxt --weak"},
    {"bench step", "the phases of a step", "bench step train.pbtxt"},
    {"bench step", "a trace of ten steps", "bench step train.pbtxt --trace step.json --steps 20"},
    {"doctor", "check this machine", "doctor"},
    {"doctor", "check it as each of two ranks sees it", "-n 2 doctor"},
    {"version", "print the version", "version"},
    {"version", "keep it with a result", "version >version.txt"},
    {"help", "say how a command is used", "help train"},
    {"help", "the same of a command of a command", "help bench step"},
    {"completion", "complete commands in this bash", "completion bash >lockstep.bash"},
    {"completion", "in each fish", "completion fish >~/.config/fish/completions/lockstep.fish"},
};

}  // namespace

std::string ExamplesOf(const std::string& name) {
  std::string text;
  for (const Example& example : kExamples) {
    if (name != example.command) continue;
    text += fmt::format("  # {}\n  $ lockstep {}\n", example.what, example.line);
  }
  if (text.empty()) return "";
  text.pop_back();  // removes the last line break, because CLI11 adds one
  return "Examples:\n" + text;
}

}  // namespace lockstep
