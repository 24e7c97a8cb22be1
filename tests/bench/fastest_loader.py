#!/usr/bin/env python3
"""Checks whether `lockstep tune --only loader` finds the fastest number of threads:

    fastest_loader.py LOCKSTEP FOLDER [--cold] [--threads 1 2 3 ...] [--seconds 3] [--rounds 3] [--time 60] [--set NAME=VALUE ...]

FOLDER has images in one folder for each class. The script lets `lockstep tune` search the loader's settings. Then it
times the suggested settings, and the same settings with each number of --threads, in turns, for --rounds rounds of
--seconds with `lockstep bench loader`, and prints a JSON line for each number. The best of many measurements is partly
luck, so the suggestion and the best number of threads are timed again, in turns, in twice as many rounds. The last line
has the ratio of the medians of samples/s, suggestion to best number, in this second comparison, and the seconds that
tune took.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from tuned import sets, suggestion


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--threads", type=int, nargs="+", default=list(range(1, 17)))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--time", type=int, default=60)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    cold = ["--cold"] if options.cold else []
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "train.pbtxt"
        config.write_text(
            f"""global_batch: 64 precision: AUTO run_dir: "{folder}/runs/mine" model {{ name: "resnet" }}
            data {{ format: IMAGES train: "{options.folder.absolute()}"
                    mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] }}"""
        )

        def rate(settings):
            words = ["bench", "loader", config, "--json", "--seconds", options.seconds, *cold]
            command = [str(word) for word in [options.lockstep, *words, *sets(options.set), *sets(settings)]]
            return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["samples_per_s"]

        words = ["--time", options.time, *cold, *sets(options.set)]
        found, tune_s = suggestion(options.lockstep, config, "loader", *words)
        ours = [f"{name}={value}" for name, value in found.items()]
        points = {"suggestion": ours} | {n: [*ours, f"loader.threads={n}"] for n in options.threads}

        def medians_of(names, rounds):
            rates = {name: [] for name in names}
            for _ in range(rounds):
                for name, measured in rates.items():
                    measured.append(rate(points[name]))
            medians = {name: statistics.median(measured) for name, measured in rates.items()}
            for name, measured in rates.items():
                print(json.dumps({"threads": name, "samples_per_s": medians[name], "all": measured}), flush=True)
            return medians

        medians = medians_of(points, options.rounds)
        best = max(options.threads, key=lambda threads: medians[threads])
        medians = medians_of(["suggestion", best], 2 * options.rounds)
    print(
        json.dumps(
            {
                "cold": options.cold,
                "suggestion": found,
                "samples_per_s": medians["suggestion"],
                "best_threads": best,
                "best_samples_per_s": medians[best],
                "ratio": round(medians["suggestion"] / medians[best], 3),
                "tune_s": round(tune_s, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
