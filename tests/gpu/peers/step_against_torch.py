#!/usr/bin/env python3
"""Times one training step in Lockstep and in PyTorch, on the same GPU:

    step_against_torch.py LOCKSTEP [--models mlp lstm tinygpt gpt2 resnet50] [--precision bf16]
                          [--compile reduce-overhead] [--rounds 3] [--gpus 1]

A model is the name of a .pbtxt config in this script's folder. The config's first line has the arguments for
train_ddp.py.

Prints the JSON line of each measurement (`lockstep bench step --json` or train_ddp.py), and a line for each model with
PyTorch's median time over the rounds divided by Lockstep's (above 1: Lockstep is faster). In each round each program
runs once.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    line = json.loads(done.stdout.strip().split("\n")[-1])
    print(json.dumps(line), flush=True)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--models", nargs="+", default=["mlp", "lstm", "tinygpt", "gpt2", "resnet50"])
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", nargs="*", default=[], help="modes of torch.compile to measure besides eager")
    parser.add_argument("--batch", type=int, help="samples a GPU instead of the config's")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="of the config, for Lockstep alone")
    options = parser.parse_args()
    for model in options.models:
        config = HERE / f"{model}.pbtxt"
        batch = options.batch or int(config.read_text().split("global_batch:")[1].split()[0])
        ours = [options.lockstep] + (["-n", str(options.gpus)] if options.gpus > 1 else [])
        ours += ["bench", "step", config, "--json", "--set", f"precision={options.precision.upper()}"]
        ours += ["--set", f"global_batch={batch * options.gpus}"]
        ours += [word for assignment in options.set for word in ("--set", assignment)]
        peer = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={options.gpus}", HERE / "train_ddp.py"]
        peer += re.match(r"# As train_ddp.py (.*?):", config.read_text())[1].split()
        peer += ["--precision", options.precision, "--batch", str(batch)]
        commands = {"lockstep": ours, "eager": peer}
        commands.update({mode: peer + ["--compile", mode] for mode in options.compile})
        found = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                found[name].append(measure(command))
        steps = {name: [line["step_ms"] for line in lines if line] for name, lines in found.items()}
        medians = {name: statistics.median(times) for name, times in steps.items() if times}
        if "lockstep" in medians:
            ratios = {name: round(time / medians["lockstep"], 3) for name, time in medians.items() if name != "lockstep"}
            print(json.dumps(dict(model=model, gpus=options.gpus, batch=batch, step_ms=medians, ratios=ratios)), flush=True)


main()
