#!/usr/bin/env python3
"""Whether steps after a profile are as fast as before it:

    profiling_cost.py LOCKSTEP CONFIG [--steps 2000] [--ranks 1] [--set NAME=VALUE ...]

Trains CONFIG for --steps steps with a profile of five steps in the middle. Prints a JSON line: the median
samples/s of the log's step lines in the first and in the last quarter of the run, their ratio (above 1: slower after the
profile), and the same of a run without profiles.
"""

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
        lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
        profiles = [line["step"] for line in lines if line["event"] == "profile"]
        speeds = [(line["step"], line["samples_per_s"]) for line in lines if line["event"] == "step"]
    before = statistics.median(s for step, s in speeds if options.steps // 8 < step < options.steps * 3 // 8)
    after = statistics.median(s for step, s in speeds if step > options.steps * 3 // 4)
    return {"profiles": profiles, "before": before, "after": after, "ratio": round(before / after, 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    print(json.dumps({"profiled": quarters(options, True), "plain": quarters(options, False)}), flush=True)


main()
