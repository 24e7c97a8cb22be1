#!/usr/bin/env python3
"""Imports a run's log.jsonl into Weights & Biases or trackio, with the names that TensorBoard has (docs/observe.md).

    pip install wandb
    python3 examples/trackers/import_run.py runs/train --to wandb --project digits
    WANDB_MODE=offline python3 examples/trackers/import_run.py runs/train --to wandb

    pip install trackio
    python3 examples/trackers/import_run.py runs/train --to trackio --project digits

The run may still train: what its log has so far is imported. Each call makes a new run in the tracker.
"""

import argparse
import importlib
import json
import pathlib
import sys

# A field of the log -> its name in the tracker. Other numbers keep their names.
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
    """The log's objects. A line that is none, as the last one of a run that was killed may be, is left out."""
    # str.splitlines() would also cut at characters that a text in a line may have.
    for text in path.read_text(errors="replace").split("\n"):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict):
            yield line


def numbers_of(line, names):
    """The numbers of a line by their names in the tracker."""
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
    """The numbers of the steps up to that one."""
    return {step: numbers for step, numbers in by_step.items() if step <= last_step}


def read_run(run_dir):
    """Returns the settings with which the run was started, and its numbers by step, in ascending order."""
    facts, by_step, last_step, starts_again = {}, {}, 0, False
    for line in lines_of(run_dir / "log.jsonl"):
        event = line.get("event")
        if event in NAMES and starts_again:
            # No checkpoint was left, and the run began again at its first step.
            by_step, last_step, starts_again = {}, 0, False
        if event == "start":
            starts_again = True
            facts |= {field: value for field, value in line.items() if field not in ("event", "time", "restarts")}
        elif event == "resume":
            # The process that made the steps after it has ended, and the run makes them again.
            last_step, starts_again = line["step"], False
            by_step = up_to(last_step, by_step)
        elif event in NAMES:
            if event == "step" and line["step"] <= last_step:
                # Whatever the log says of why: a step that comes again replaces the later ones.
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
        # Both have the same functions.
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
