"""Tests that a long training does not grow: in the end it has no more memory, open files and threads than after it had
settled. $TRAIN_S is the seconds of watching; $MORE_MEMORY is the share by which its memory may grow."""

import os
import pathlib
import time

import pytest

from harness import SMALL_MLP, STOPPED, Started, digits_data, processes_of, skip_without_gpus, write_config

TRAIN_S = float(os.environ.get("TRAIN_S", "20"))
LOOK_S = 4  # seconds over which a process is sampled; they include some checkpoints
LOOKS = 100  # samples in LOOK_S; the least counts, because writing a checkpoint takes files and memory
MIB = 2**20
SLACK = 32 * MIB  # bytes that malloc may keep at times
MORE_MEMORY = float(os.environ.get("MORE_MEMORY", "1"))


def held_by(pid):
    """Returns the process's resident bytes, open files and threads."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return 1024 * int(fields["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])


def least_held_by(pid):
    looks = []
    for _ in range(LOOKS):
        looks.append(held_by(pid))
        time.sleep(LOOK_S / LOOKS)  # the interval between the samples; the test waits for nothing here
    return [min(of_kind) for of_kind in zip(*looks)]


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("it trains for 20 s, and the soak trains for an hour")
def test_it_takes_no_more_with_time(ranks, tmp_path):
    skip_without_gpus(ranks)
    config = write_config(
        tmp_path,
        f"""global_batch: 64 epochs: 1000000 log {{ every_steps: 100 }}
        checkpoint {{ every_epochs: 0 every_minutes: 0.02 keep: 2 }}
        {digits_data("validation_fraction: 0.2")} model {{ {SMALL_MLP} }}""",
    )
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("checkpoint", 5)
        pids = [job.rank(number) for number in range(ranks)] if ranks else [job.process.pid]
        before = [least_held_by(pid) for pid in pids]
        time.sleep(TRAIN_S)  # the duration of the watched training; the test waits for nothing here
        after = [least_held_by(pid) for pid in pids]
        status, out, err = job.stop()
    assert status == STOPPED, (out, err)
    for rank, ((memory, *rest), (memory_then, *rest_then)) in enumerate(zip(before, after)):
        assert memory_then <= memory + min(SLACK, MORE_MEMORY * memory), (rank, memory // MIB, memory_then // MIB)
        assert rest_then <= rest, (rank, rest, rest_then)
    assert not processes_of(job.run_dir)
