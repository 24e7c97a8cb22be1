"""Sends a signal at any moment of a run's life: exit status, message and files on disk must be those in the table of
docs/design.md ('Starting and stopping'), and the resumed run must end with the same bits.

A case is a signal, a number of ranks and a moment (0 to 2.98 s in steps of 20 ms); there are 1,800 cases. The seed SEED
shuffles the cases. SIGNALS=N (120 by default) takes the first N/12 cases of each signal and number of ranks; PART=I/N
instead takes every N-th case from number I on, counted from 0. Busy processes occupy half of the cores during the test.
"""

import os
import random
import re
import signal
import subprocess
import time

import pytest

from harness import (
    DONE,
    INTERRUPTED,
    STOPPED,
    Started,
    checkpoints,
    digits_config,
    digits_data,
    events,
    losses_by_step,
    runs_by_ranks,
    skip_without_gpus,
    train,
    weight_bytes,
    write_config,
)

SEED = int(os.environ.get("SEED", "1"))
TRAINING_S = 5
LATE_S = 5  # seconds for which the program, after a signal, still waits for its first step
NUMBERS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
CELLS = [(number, ranks, moment) for number in NUMBERS for ranks in (1, 2, 3) for moment in range(150)]


def chosen_cells():
    """Returns the cases of $PART, or $SIGNALS shuffled cases, with equally many for each signal and number of ranks."""
    cells = CELLS.copy()
    random.Random(SEED).shuffle(cells)
    if "PART" in os.environ:
        part, parts = map(int, os.environ["PART"].split("/"))
        return cells[part::parts]
    kinds = {}
    for cell in cells:
        kinds.setdefault(cell[:2], []).append(cell)
    count = int(os.environ.get("SIGNALS", "120")) // len(kinds)
    return [cell for kind in kinds.values() for cell in kind[:count]]


CHOSEN = chosen_cells()
# The (signal, number of ranks) of the cases in every commit's tests: the signals that users and batch systems send most
# often. Each number of ranks costs two further runs. stop_test.py sends every signal to 1, 2 and 3 ranks.
IN_COMMITS = ((signal.SIGTERM, 2), (signal.SIGINT, 2))
COMMITTED = [next(cell for cell in CHOSEN if cell[:2] == kind) for kind in IN_COMMITS]


def config_of(folder, steps):
    more = f"max_steps: {steps} checkpoint {{ every_steps: {steps // 10} every_epochs: 0 }}"
    return write_config(folder, digits_config(more, digits_data("validation_fraction: 0.2"), log_every=steps // 50))


def config_in(folder, ranks):
    """Writes the config of a training of about five seconds; the last moment of a signal is at 2.98 s. A trial run
    measures the speed of this machine while other processes keep half of its cores busy."""
    trial = train(config_of(folder, 100), folder / "trial", ranks=ranks)
    assert trial.status == DONE, trial
    rate = events(folder / "trial", "done")[-1]["samples_per_s"] / 64
    return config_of(folder, min(5000, max(100, int(TRAINING_S * rate))))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return runs_by_ranks(tmp_path_factory, config_in)


@pytest.fixture(scope="module", autouse=True)
def busy_cores():
    """Starts processes that occupy half of the cores that this test may use."""
    count = max(1, len(os.sched_getaffinity(0)) // 2)
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.parametrize("number,ranks,moment", CHOSEN, ids=[f"{n.name}-{r}-{20 * m}ms" for n, r, m in CHOSEN])
@pytest.mark.all_tier(
    "each signal and number of ranks is tried at another moment",
    unless=lambda number, ranks, moment: (number, ranks, moment) in COMMITTED,
)
def test_a_signal(number, ranks, moment, tmp_path, undisturbed):
    skip_without_gpus(ranks)
    config, whole, _ = undisturbed(ranks)
    run_dir = tmp_path / "run"
    with Started(config, run_dir, ranks) as job:
        time.sleep(0.02 * moment)  # seconds after the start at which the signal comes, whatever the job is doing
        job.process.send_signal(number)
        sent = time.time()
        status, out, err = job.end()
        took = time.time() - sent
    what = f"status {status}\n{out[-500:]}\n{err[-500:]}"
    stopped = [int(step) for step in re.findall(r"^stopped after step (\d+) of ", out, re.M)]
    if status == -number:
        # The signal came while the program was being loaded.
        assert out == "" and not run_dir.exists(), what
        return
    # A job that SIGINT stopped in time has the same status as one that SIGINT ended, but says where it stopped.
    if status == 128 + number and number != signal.SIGUSR2 and not (number == signal.SIGINT and stopped):
        steps = events(run_dir, "step") if (run_dir / "log.jsonl").exists() else []
        # A job that is too late may begin its steps while mpirun ends it, and then still saves what it has done. The
        # program hears of the first step a moment after its time in the log.
        is_late = not steps or steps[0]["time"] - sent >= LATE_S - 1
        saved = checkpoints(run_dir)
        assert took >= LATE_S and is_late and set(stopped) <= set(saved) and (steps or saved == []), what
        if not saved:
            return
        again = train(config, run_dir, ranks=ranks)
        assert again.status == DONE, f"{what}\n{again}"
    elif status == DONE:
        assert stopped == [] and "done: " in out and (run_dir / "weights.safetensors").exists(), what
    else:
        assert status == (INTERRUPTED if number == signal.SIGINT else STOPPED), what
        assert len(stopped) == 1 and checkpoints(run_dir)[-1] == stopped[0], what
        assert not (run_dir / "weights.safetensors").exists(), what
        again = train(config, run_dir, ranks=ranks)
        assert again.status == DONE, f"{what}\n{again}"
    assert weight_bytes(run_dir) == weight_bytes(whole), what
    seen, expected = losses_by_step(run_dir), losses_by_step(whole)
    assert {step: seen[step] for step in seen if step in expected} == {step: expected[step] for step in expected if step in seen}, what
