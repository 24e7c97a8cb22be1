#!/usr/bin/env python3
"""Measures what a run's chosen metric gains or loses by the learning rate that `lockstep tune --only rate` suggests.

    tests/bench/tuned_metric.py LOCKSTEP [--tasks digits gpt loans churn clicks] [--seeds 1 2 3] [--time 60]

Each task is trained with its config's own rate and with the suggestion, with the same seed. The chosen metric is that
of early_stopping or checkpoint.keep_best, and its value is the best of the run, because the run keeps the weights
that had it. digits is the README's perceptron, which keeps the weights with the best accuracy. gpt is a GPT of two
layers on the bytes of this project's documents, and keeps those with the lowest loss. loans, churn and clicks are the
noisy tables of tests/noisy_tables.py with the config that `lockstep new` writes, which stops by the area under the
ROC curve. Prints a JSON line for each task and seed: the two rates, the two values, and `gain`, by which share of the
config's own value the suggestion is better (below 0: worse). Needs pandas.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import learning_rates
import pandas
from tuned import sets, suggestion

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import noisy_tables  # noqa: E402

ROWS = {"loans": 6000, "churn": 6000, "clicks": 10_000}


def write_config(options, task, seed, folder):
    """Writes the task's config to `folder`, and returns its path."""
    config = folder / "train.pbtxt"
    if task in ROWS:
        columns, label = noisy_tables.TABLES[task](rows=ROWS[task], seed=seed)
        pandas.DataFrame(columns).to_csv(folder / "train.csv", index=False)
        words = [options.lockstep, "new", "train.csv", "--label", label]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
        return config
    rate, metric = {"digits": ("0.003", "accuracy"), "gpt": ("0.001", "loss")}[task]
    text = learning_rates.TASKS[task](options, folder).replace("type: ADAMW", f"type: ADAMW lr: {rate}")
    config.write_text(f"{text} checkpoint {{ keep_best: '{metric}' }}")
    return config


def best_of(options, config, run, seed, settings):
    """Trains, and returns the name and the best value of the run's chosen metric."""
    words = sets([f"seed={seed}", f"run_dir={run}", *(f"{field}={value!r}" for field, value in settings.items())])
    subprocess.run([options.lockstep, "train", config, *words], check=True, capture_output=True)
    done = subprocess.run([options.lockstep, "runs", run.parent, "--json"], check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    (line,) = [line for line in lines if pathlib.Path(line["run"]).name == run.name]
    return line["best_metric"], line["best"]


def main():
    tasks = ["digits", "gpt", *ROWS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=lambda path: str(pathlib.Path(path).absolute()))
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--time", type=int, default=60)
    options = parser.parse_args()
    for task in options.tasks:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                config = write_config(options, task, seed, folder)
                found, _ = suggestion(options.lockstep, config, "rate", "--time", options.time, *sets([f"seed={seed}"]))
                metric, own = best_of(options, config, folder / "own", seed, {})
                _, tuned = best_of(options, config, folder / "tuned", seed, found)
                less_is_better = metric.endswith("loss")
                gain = (own - tuned if less_is_better else tuned - own) / own
                line = {"task": task, "seed": seed, "metric": metric, "own": own, "tuned": tuned}
                print(json.dumps({**line, "gain": round(gain, 4), "suggestion": found}), flush=True)


if __name__ == "__main__":
    main()
