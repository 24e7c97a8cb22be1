#!/usr/bin/env python3
"""Measures whether steps after a recorded profile are as fast as steps before it:

    profiling_cost.py LOCKSTEP CONFIG [--steps 2000] [--rounds 3] [--ranks 1] [--set NAME=VALUE ...]

Trains CONFIG for --steps steps with a profile of five steps in the middle. Prints a JSON line for each round, with
steps/s from the times in the log: from one eighth to three eighths of the run (before the profile), in the last quarter
of the run (after the profile), and the ratio before to after (above 1: steps are slower after the profile). The line
also has the same three values of a second run, which records no profile. The last line has the medians of the ratios
over the rounds. """

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def quarters(options, profile):
    with tempfile.TemporaryDirectory() as folder:
        run_dir = pathlib.Path(folder) / "run"
        every = max(1, options.steps // 100)
        settings = [f"max_steps={options.steps}", f"log.every_steps={every}", f"run_dir={run_dir}", *options.set]
        if profile:
            settings += [f"profile.first_step={options.steps // 2}"]
        words = [options.lockstep, *(["-n", str(options.ranks)] if options.ranks > 1 else []), "train", options.config]
        words += [word for setting in settings for word in ("--set", setting)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{words}: status {done.returncode}\n{done.stderr[-2000:]}")
        lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().split("\n")[:-1]]
        profiles = [line["step"] for line in lines if line["event"] == "profile"]
        times = {line["step"]: line["time"] for line in lines if line["event"] == "step"}

    def steps_per_s(first, last):
        """Returns the steps/s between the logged steps that are nearest to `first` and to `last`."""
        first, last = (min(times, key=lambda step: abs(step - wanted)) for wanted in (first, last))
        return (last - first) / (times[last] - times[first])

    before = steps_per_s(options.steps // 8, options.steps * 3 // 8)
    after = steps_per_s(options.steps * 3 // 4, options.steps)
    return {"profiles": profiles, "before": round(before, 2), "after": round(after, 2), "ratio": round(before / after, 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    ratios = {"profiled": [], "plain": []}
    for _ in range(options.rounds):
        found = {"profiled": quarters(options, True), "plain": quarters(options, False)}
        print(json.dumps(found), flush=True)
        for side, ratio in ratios.items():
            ratio.append(found[side]["ratio"])
    print(json.dumps({side: statistics.median(ratio) for side, ratio in ratios.items()}), flush=True)


main()
