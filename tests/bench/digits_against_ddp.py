"""Compares Lockstep with PyTorch's DistributedDataParallel on the digits data, with two ranks on the CPU, in
alternating runs.

    .venv/bin/python tests/bench/digits_against_ddp.py [PAIRS]

Lockstep and PyTorch train the model of examples/digits on the same 1,437 rows and test it on the same 360 rows (all
rows were shuffled with NumPy's seed 0), with the same batch size and number of epochs. Prints one JSON line for each
run, and then a line with the machine and, for each value, the median over the pairs of Lockstep's value divided by
PyTorch's. For both programs, samples_per_s is the speed of training alone, after the first epoch, and first_step_s is
the time from the start of mpirun's or torchrun's worker process to the end of step 1.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("LOCKSTEP", str(ROOT / "lockstep"))
os.environ.setdefault("DIGITS", str(ROOT / "examples/digits/digits.csv"))

from harness import Run, events, split_digits  # noqa: E402 (harness reads the environment)


def lockstep(folder, number):
    run_dir = folder / f"run{number}"
    arguments = ["train", ROOT / "examples/digits/train.pbtxt"]
    for assignment in (
        f"run_dir={run_dir}",
        f"data.train={folder}/train.csv",
        f"data.validation={folder}/test.csv",
        "data.validation_fraction=0",
        "schedule.type=CONSTANT",
        "seed=1",
        "device=CPU",
    ):
        arguments += ["--set", assignment]
    run = Run(arguments, ranks=2)
    assert run.status == 0, run
    done = events(run_dir, "done")[0]
    figures = {key: done[key] for key in ("first_step_s", "samples_per_s", "total_s")}
    return figures | {"accuracy": done["val_accuracy"]}


def pytorch(folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", ROOT / "tests/bench/digits_ddp.py"]
    done = subprocess.run([*command, folder / "train.csv", folder / "test.csv"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.split("\n")[-2])


def main(pairs):
    ratios = {"samples_per_s": [], "first_step_s": []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        split_digits(folder)
        for number in range(pairs):
            ours, theirs = lockstep(folder, number), pytorch(folder)
            print(json.dumps(dict(program="lockstep", **ours)), flush=True)
            print(json.dumps(dict(program="pytorch ddp gloo", **theirs)), flush=True)
            for key, values in ratios.items():
                values.append(ours[key] / theirs[key])
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    medians = {f"{key}_ratio": round(statistics.median(values), 3) for key, values in ratios.items()}
    print(json.dumps(dict(pairs=pairs, **medians, machine=f"{os.cpu_count()} cores of {model}")))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
