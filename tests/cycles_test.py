"""Tests that jobs which are started and stopped repeatedly leave nothing behind: no process, and no file in temporary
folders, in shared memory or in the cache. $CYCLES is the number of jobs."""

import os
import pathlib
import random
import signal

import pytest

from harness import (
    INTERRUPTED,
    STOPPED,
    Started,
    digits_data,
    processes_of,
    skip_without_gpus,
    wait_until,
    write_config,
)

CYCLES = int(os.environ.get("CYCLES", "6"))
SHARED = pathlib.Path("/dev/shm")
# The signals that end jobs here, each as (signal, exit status). This exit status does not depend on the moment of the
# signal; signals_test.py tests particular moments.
ENDINGS = [(signal.SIGTERM, STOPPED), (signal.SIGUSR2, STOPPED), (signal.SIGINT, INTERRUPTED)]


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.all_tier("it starts and stops 6 jobs, and the soak does so 200 times")
def test_nothing_is_left(tmp_path):
    skip_without_gpus(3)
    draw = random.Random(1)
    config = write_config(
        tmp_path,
        f"""global_batch: 48 epochs: 1000000 log {{ every_steps: 10 }} checkpoint {{ every_epochs: 5 keep: 1 }}
        {digits_data()} model {{ name: "mlp" mlp {{ hidden: [8] }} }}""",
    )
    temporary, cache, run_dir = tmp_path / "tmp", tmp_path / "cache", tmp_path / "run"
    temporary.mkdir()
    cache.mkdir()
    shared_before = set(os.listdir(SHARED))
    cached = []
    for cycle in range(CYCLES):
        ranks = (None, 2, 3)[cycle % 3]
        number, expected = draw.choice(ENDINGS)
        env = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}
        with Started(config, run_dir, ranks, env=env) as job:
            job.wait_for("start", cycle + 1)
            os.kill(job.process.pid, number)
            status, out, err = job.end()
        assert status == expected, (cycle, out, err)
        assert not processes_of(run_dir), cycle
        assert not files_below(temporary), (cycle, files_below(temporary))
        cached.append(files_below(cache))
        # From cycle 2 on, every number of ranks has run at least once, so the cache must not grow any more.
        assert cycle < 2 or cached[cycle] == cached[2], cycle
        # Other jobs on this machine have files in shared memory while they run, so the test waits until those files are
        # gone.
        wait_until(lambda: set(os.listdir(SHARED)) <= shared_before)
    assert {path.name for path in run_dir.iterdir()} == {"checkpoints", "config.pbtxt", "flight", "lock", "log.jsonl"}
    assert len(list((run_dir / "flight").iterdir())) <= 3  # one file for each rank of the last job
    assert len(list((run_dir / "checkpoints").iterdir())) == 1
