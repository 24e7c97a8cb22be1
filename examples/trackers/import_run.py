#!/usr/bin/env python3
"""Imports a run's log.jsonl into Weights & Biases or trackio, under the names used in TensorBoard (docs/observe.md).

    pip install wandb
    python3 examples/trackers/import_run.py runs/train --to wandb --project digits
    WANDB_MODE=offline python3 examples/trackers/import_run.py runs/train --to wandb

    pip install trackio
    python3 examples/trackers/import_run.py runs/train --to trackio --project digits

If the run is still training, the part of the log that exists so far is imported. Each call makes a new run in the
tracker.
"""

import argparse
import importlib
import json
import pathlib
import sys

# For each event of the log, the names of fields that have another name in the tracker. Other fields keep their names.
NAMES = {
    "step": {"loss": "train_loss", "samples_per_s": "throughput/samples_per_sec"},
    "epoch": {"train_loss": "train_loss_epoch", "samples_per_s": "throughput/samples_per_sec_epoch"},
    "eval": {},
    "machine": {
        "cpu_use": "host/cpu_use",
        "memory_used_bytes": "host/memory_used_bytes",
        "process_memory_bytes": "host/process_memory_bytes",
    },
}


def lines_of(path):
    """Yields the log's JSON objects. Skips other lines, such as a last line that is incomplete."""
    # The text is split at "\n" only. str.splitlines() would also split at other characters, which a line may contain.
    for text in path.read_text(errors="replace").split("\n"):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict):
            yield line


def numbers_of(line, names):
    """Returns the numbers of a line of the log, by their names in the tracker. `names` has the tracker's names for
    those fields of the line that have another name there."""
    numbers = {
        names.get(field, field): value
        for field, value in line.items()
        if field not in ("event", "step", "time") and isinstance(value, (int, float))
    }
    for gpu in line.get("gpus", []):
        for field, value in gpu.items():
            if field not in ("index", "xid_error") and isinstance(value, (int, float)):
                numbers[f"gpu{gpu['index']}/{field}"] = value
    return numbers


def up_to(last_step, by_step):
    """Returns the numbers of the steps up to and including `last_step`."""
    return {step: numbers for step, numbers in by_step.items() if step <= last_step}


def read_run(run_dir):
    """Returns the settings with which the run was started, and its numbers by step, in ascending order."""
    facts, by_step, last_step, starts_again = {}, {}, 0, False
    for line in lines_of(run_dir / "log.jsonl"):
        event = line.get("event")
        if event in NAMES and starts_again:
            # The process started without a checkpoint, so the run began again at its first step.
            by_step, last_step, starts_again = {}, 0, False
        if event == "start":
            starts_again = True
            facts |= {field: value for field, value in line.items() if field not in ("event", "time", "restarts")}
        elif event == "resume":
            # An earlier process made the steps after this checkpoint. The run makes these steps again, so their earlier
            # numbers are dropped.
            last_step, starts_again = line["step"], False
            by_step = up_to(last_step, by_step)
        elif event in NAMES:
            if event == "step" and line["step"] <= last_step:
                # If a step occurs a second time, for whatever reason, its earlier numbers and those of all later steps
                # are dropped.
                by_step = up_to(line["step"] - 1, by_step)
            last_step = line.get("step", last_step)
            by_step.setdefault(last_step, {}).update(numbers_of(line, NAMES[event]))
    config = run_dir / "config.pbtxt"
    if config.exists():
        facts["config.pbtxt"] = config.read_text(errors="replace")
    return facts, sorted(by_step.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="the run folder")
    parser.add_argument("--to", required=True, choices=["wandb", "trackio"])
    parser.add_argument("--project", default="lockstep")
    parser.add_argument("--name", help="the run's name in the tracker; if it is left out, the folder's name")
    options = parser.parse_args()
    try:
        facts, steps = read_run(options.run)
    except OSError as error:
        sys.exit(f"import_run: {error.filename}: {error.strerror}: name the folder of a run")
    if not steps:
        sys.exit(f"import_run: {options.run}/log.jsonl: has no steps yet: import the run later")
    try:
        # wandb and trackio have the same functions init(), log() and finish().
        tracker = importlib.import_module(options.to)
    except ImportError:
        sys.exit(f"import_run: {options.to} is not installed: pip install {options.to}")
    name = options.name or options.run.resolve().name
    tracker.init(project=options.project, name=name, config=facts)
    for step, numbers in steps:
        tracker.log(numbers, step=step)
    tracker.finish()
    print(f"{len(steps)} steps of {options.run} are in {options.to}'s project {options.project} as {name}")


if __name__ == "__main__":
    main()
