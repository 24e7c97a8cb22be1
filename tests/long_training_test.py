"""Tests that the processes of a long training do not use more and more resources. At the end of the training, each
process has no more open files and threads than after the fifth checkpoint, and at most 32 MiB more memory. $TRAIN_S is
the number of seconds between these two measurements. $MORE_MEMORY is the share of the first measurement by which the
memory may grow, if this is less than 32 MiB."""

import os
import pathlib
import time

import pytest

from harness import SMALL_MLP, STOPPED, Started, digits_data, processes_of, skip_without_gpus, write_config

TRAIN_S = float(os.environ.get("TRAIN_S", "20"))
LOOK_S = 4  # seconds for which a process is sampled; a checkpoint is written every 1.2 s
LOOKS = 100  # samples in LOOK_S; the least value counts, because writing a checkpoint takes files and memory
MIB = 2**20
SLACK = 32 * MIB  # bytes of freed memory that malloc may keep at times
MORE_MEMORY = float(os.environ.get("MORE_MEMORY", "1"))


def held_by(pid):
    """Returns (resident bytes, number of open files, number of threads) of the process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return 1024 * int(fields["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])


def least_held_by(pid):
    looks = []
    for _ in range(LOOKS):
        looks.append(held_by(pid))
        time.sleep(LOOK_S / LOOKS)  # seconds between two samples
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
        time.sleep(TRAIN_S)  # seconds between the two measurements
        after = [least_held_by(pid) for pid in pids]
        status, out, err = job.stop()
    assert status == STOPPED, (out, err)
    for rank, ((memory, *rest), (memory_then, *rest_then)) in enumerate(zip(before, after)):
        assert memory_then <= memory + min(SLACK, MORE_MEMORY * memory), (rank, memory // MIB, memory_then // MIB)
        assert rest_then <= rest, (rank, rest, rest_then)
    assert not processes_of(job.run_dir)
