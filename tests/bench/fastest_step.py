#!/usr/bin/env python3
"""Checks whether `lockstep tune --only batch` finds the fastest setting of micro-batches and activation checkpointing:

    fastest_step.py LOCKSTEP CONFIG [--points 24] [--seconds 5] [--time 60] [--reserve 0.05] [--keep FILE]
                    [--set NAME=VALUE ...]

The script lets `lockstep tune` suggest a setting. Then it times --points settings one by one with `lockstep bench
step`, each for --seconds: 1, 2, 3, ... micro-batches, if the number divides the batch, each without and with activation
checkpointing. It prints a JSON line for each setting. The last line has the samples/s of the suggested setting, timed
in the same way, divided by those of the best setting, and the seconds that tune took. With --keep, measurements are
kept in FILE, and a script that was interrupted continues after the last of them, on the same machine.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from tuned import sets, suggestion


def timed(options, accumulation, checkpointing, steps=10):
    settings = [*options.set, f"accumulation={accumulation}", f"model.activation_checkpointing={checkpointing}"]
    words = [options.lockstep, "bench", "step", options.config, "--json", "--warmup", "5", "--steps", str(steps)]
    done = subprocess.run([*words, *sets(settings)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"failure": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def point(options, accumulation, checkpointing, like):
    """Returns the line that `bench step` prints, and the samples/s, or 0 if the step does not fit in memory or leaves
    less free memory than --reserve. `like` is the line of a similar setting. Its step time is used to compute how many
    steps take --seconds. """
    steps = max(5, int(1e3 * options.seconds / like["step_ms"]))
    line = timed(options, accumulation, checkpointing, steps)
    fits = "failure" not in line and line["accum"] == accumulation
    leaves_enough = fits and line["left_gib"] >= options.reserve * line["device_gib"]
    speed = line["samples_per_s"] if leaves_enough else 0
    figures = {key: line[key] for key in ("batch", "samples_per_s", "peak_gib", "left_gib") if fits}
    figures |= {"accumulation": accumulation, "checkpointing": checkpointing, "counts": leaves_enough}
    print(json.dumps(figures), flush=True)
    return line, speed


class Kept:
    """Keeps the measurements so far, by name, in a file of JSON lines, or in memory if there is no file."""

    def __init__(self, path):
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.known = {line["name"]: line["value"] for line in map(json.loads, lines)}

    def of(self, name, measure):
        if name not in self.known:
            self.known[name] = measure()
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps({"name": name, "value": self.known[name]}) + "\n")
        return self.known[name]


def accumulations(global_batch, count):
    """Returns the `count` smallest divisors of `global_batch`, which give the largest micro-batches."""
    return [n for n in range(1, global_batch + 1) if global_batch % n == 0][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("config")
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--time", type=int, default=60)
    parser.add_argument("--reserve", type=float, default=0.05)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    kept = Kept(options.keep)
    like = kept.of("first", lambda: timed(options, 1, "false"))  # also fills the cache of convolution plans
    global_batch = like["global_batch"]

    def tuned():
        with tempfile.TemporaryDirectory() as folder:
            words = ["--time", options.time, "--reserve", options.reserve]
            settings = sets([*options.set, f"run_dir={folder}/run"])
            return suggestion(options.lockstep, options.config, "batch", *words, *settings)

    found, tune_s = kept.of("tune", tuned)
    suggested = (found["accumulation"], str(found["model.activation_checkpointing"]).lower())
    points = {}

    def measure(accumulation, checkpointing):
        name = f"{accumulation} {checkpointing}"
        return kept.of(name, lambda: point(options, accumulation, checkpointing, like))

    for checkpointing in ("false", "true"):
        for accumulation in accumulations(global_batch, options.points // 2):
            line, speed = measure(accumulation, checkpointing)
            points[accumulation, checkpointing] = speed
            if speed > 0:
                like = line
    ours = measure(*suggested)[1]
    best = max(points, key=points.get)
    print(json.dumps({"suggested": suggested, "best": best, "ratio": round(ours / points[best], 4), "tune_s": round(tune_s, 1)}))


if __name__ == "__main__":
    main()
