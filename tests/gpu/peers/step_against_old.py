#!/usr/bin/env python3
"""Times one training step with two builds of Lockstep, in turns on the same GPU:

    step_against_old.py OLD NEW [--models mlp gpt2 resnet50] [--precision bf16] [--rounds 10]

A model is the name of a .pbtxt config in this script's folder. Prints a JSON line for each model: the median
milliseconds of OLD and of NEW over the rounds, and the median over the rounds of the ratio NEW to OLD (above 1: NEW is
slower). The first round is not counted, because convolution plans are searched in it.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def step_ms(program, model, precision):
    command = [program, "bench", "step", HERE / f"{model}.pbtxt", "--json", "--set", f"precision={precision.upper()}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().split("\n")[-1])["step_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--models", nargs="+", default=["mlp", "gpt2", "resnet50"])
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for model in options.models:
        rounds = []
        for number in range(options.rounds + 1):
            # In odd rounds OLD runs first, in even rounds NEW.
            order = [options.old, options.new] if number % 2 else [options.new, options.old]
            times = {program: step_ms(program, model, options.precision) for program in order}
            if number > 0:
                rounds.append((times[options.old], times[options.new]))
        old, new = (statistics.median(times) for times in zip(*rounds))
        ratio = statistics.median(new / old for old, new in rounds)
        print(
            json.dumps(dict(model=model, old_ms=old, new_ms=new, ratio=round(ratio, 4), rounds=rounds)),
            flush=True,
        )


main()
