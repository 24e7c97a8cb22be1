"""Checks that a run that is killed at any call that changes the file system resumes as if nothing had happened, and
that a run whose disk fails reports the error and keeps its trained weights.

tests/faults/fault_at.c, loaded through LD_PRELOAD, kills one rank at its k-th such call in the run's folder, or makes
this call and all later ones fail. The run writes four checkpoints and keeps two, and all its calls are counted, from
the creation of its folder to its last log line. test_killed_at_any_call draws a sample of the values of k with a fixed
seed; this command tests all values of k:

  LOCKSTEP_TIER=all SWEEP=all python3 -m pytest tests/checkpoint_fault_test.py -s

With PART=2/8 as well, this command takes every eighth call from the third on (PART counts from 0), so that several
processes can share the work. `./lockstep test --soak` runs all parts.
"""

import json
import os
import random
import re

import numpy as np
import pytest

from harness import (
    CHECKPOINT,
    DEVICE,
    DONE,
    LOCKSTEP,
    USAGE,
    Run,
    checkpoints,
    digits_data,
    events,
    expect_error,
    in_mount_namespace,
    log_text,
    losses_by_step,
    path_of,
    runs_by_ranks,
    skip_without_gpus,
    train,
    weight_bytes,
    write_config,
)

FAULT_AT = path_of("FAULT_AT_SO")
SWEEP = os.environ.get("SWEEP", "4")
PART, PARTS = map(int, os.environ.get("PART", "0/1").split("/"))
EVERY, STEPS = 5, 20


def config_in(folder, ranks=None):
    return write_config(
        folder,
        f"""deterministic: true log {{ every_steps: 1 }} global_batch: 1024 max_steps: {STEPS}
        {digits_data()}
        model {{ name: "mlp" mlp {{ hidden: [512, 512] dropout: 0.2 }} }}
        optimizer {{ lr: 0.003 }} checkpoint {{ every_steps: {EVERY} every_epochs: 0 keep: 2 }}""",
    )


def fault(run_dir, kind, at, rank=None, **more):
    env = {"LD_PRELOAD": FAULT_AT, "FAULT": kind, "FAULT_AT": str(at), "FAULT_PATH": str(run_dir), **more}
    if rank is not None:
        env["FAULT_RANK"] = str(rank)
    return env


def whole_lines(run_dir):
    """Returns the events of a killed run's log, without the last line if it is incomplete."""
    text = log_text(run_dir)
    return [json.loads(line) for line in text.split("\n")[:-1]]


def sample(calls, name):
    every = range(1, calls + 1)
    return every[PART::PARTS] if SWEEP == "all" else sorted(random.Random(name).sample(every, min(int(SWEEP), calls)))


def newest_of(run_dir):
    return max(checkpoints(run_dir), default=0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return runs_by_ranks(tmp_path_factory, config_in)


@pytest.mark.parametrize("ranks,victim", [(None, None), (2, 0), (2, 1), (3, 0), (3, 2)])
@pytest.mark.all_tier(
    "other victims follow the same protocol, and three ranks do what two do",
    unless=lambda ranks, victim: (ranks, victim) in ((None, None), (2, 1)),
)
def test_killed_at_any_call(tmp_path, ranks, victim):
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    whole = tmp_path / "whole"
    count = tmp_path / "count"
    run = train(config, whole, ranks=ranks, env=fault(whole, "kill", 10**9, victim, FAULT_COUNT=str(count)))
    assert run.status == DONE, run
    assert len(events(whole, "checkpoint")) >= 2
    calls = int(count.read_text())
    killed = 0
    for k in sample(calls, f"{ranks} {victim}"):
        run_dir = tmp_path / f"at-{k}"
        run = train(config, run_dir, ranks=ranks, env=fault(run_dir, "kill", k, victim))
        # On a slow disk a run makes fewer checkpoints, and therefore fewer calls, so it may end before call k.
        killed += run.status != DONE
        lines = whole_lines(run_dir)
        newest = newest_of(run_dir)
        announced = [e["step"] for e in lines if e["event"] == "checkpoint"]
        assert all(step <= newest for step in announced), f"call {k}: {announced} announced, {newest} there"
        done = max([e["step"] for e in lines if e["event"] == "step"], default=0)
        # Unless a checkpoint was late, the run loses fewer than 2 * EVERY steps: one interval, and the steps that were
        # trained while the next checkpoint was being written. On a GPU it may lose eight steps more, because the host
        # learns eight steps later whether it may commit a checkpoint.
        late = [e for e in lines if e["event"] == "checkpoint_late"]
        lag = 8 if DEVICE == "CUDA" else 0
        assert late or done - newest < 2 * EVERY + lag, f"call {k}: {done} steps done, the newest is of {newest}"

        run = train(config, run_dir, ranks=ranks)
        assert run.status == DONE, f"after call {k}: {run}"
        assert [e["step"] for e in events(run_dir, "resume")] == ([newest] if newest > 0 else []), f"after call {k}"
        assert losses_by_step(run_dir) == losses_by_step(whole), f"after call {k}"
        assert newest_of(run_dir) == STEPS, f"after call {k}"
        assert not [name for name in os.listdir(run_dir / "checkpoints") if not re.fullmatch(r"step-\d+", name)]
        assert weight_bytes(run_dir) == weight_bytes(whole), f"after call {k}"
    print(f"{killed} kills of rank {victim or 0} of {ranks or 1}, {calls} calls")
    assert 2 * killed > len(sample(calls, f"{ranks} {victim}"))


# Maps each error to the rank on which every commit's tests make it happen; None: the run has a single rank.
VICTIMS = {"ENOSPC": 1, "EIO": None, "EDQUOT": 0, "EROFS": None}


@pytest.mark.parametrize("ranks,victim", [(None, None), (2, 0), (2, 1)])
@pytest.mark.parametrize(
    "kind,reason", [("ENOSPC", "No space left"), ("EIO", "Input/output"), ("EDQUOT", "quota"), ("EROFS", "Read-only")]
)
@pytest.mark.all_tier(
    "each error hits one victim already, at the same calls",
    unless=lambda kind, victim: victim == VICTIMS[kind],
)
def test_a_disk_that_fails(tmp_path, undisturbed, ranks, victim, kind, reason):
    """Makes all calls in the checkpoints' folder fail from one call on. Training goes on to the end, and then the run
    fails, because its last checkpoint cannot be written."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    (_, whole, _), run_dir = undisturbed(ranks), tmp_path / "run"
    env = fault(run_dir, kind, random.Random(f"{kind} {ranks} {victim}").randrange(3, 26), victim)
    run = train(config, run_dir, ranks=ranks, env=dict(env, FAULT_PATH=f"{run_dir}/checkpoints/"))
    assert run.status == CHECKPOINT, run
    assert reason in run.error_lines[-1] and str(run_dir) in run.error_lines[-1], run
    assert list(losses_by_step(run_dir)) == list(range(1, STEPS + 1))
    if victim == 1:
        assert any("warning: rank 1: no checkpoint of step " in line for line in run.error_lines), run
    reasons = [e["reason"] for e in events(run_dir, "checkpoint_failed")]
    assert all(reason in text or "another rank" in text for text in reasons), reasons
    # The trained weights are written, even if the checkpoint failed.
    assert weight_bytes(run_dir) == weight_bytes(whole)
    newest = newest_of(run_dir)
    assert newest == max((e["step"] for e in events(run_dir, "checkpoint")), default=0)

    run = train(config, run_dir, ranks=ranks)
    if newest == 0:
        # The program asks for --fresh, because a run from the beginning would overwrite the weights.
        expect_error(run, USAGE, "the run has ended and left no checkpoint to go on from", "--fresh")
        run = train(config, run_dir, "--fresh", ranks=ranks)
    assert run.status == DONE, run
    assert [e["step"] for e in events(run_dir, "resume")] == ([newest] if newest > 0 else [])
    assert losses_by_step(run_dir) == losses_by_step(whole)


def test_a_best_that_cannot_be_written(tmp_path):
    """Checks that, if the checkpoint with the best validation loss cannot be written, the run keeps the best of the
    checkpoints that could be written."""
    random = np.random.default_rng(1)
    rows = np.column_stack([random.normal(size=(64, 8)).round(3), random.integers(0, 2, 64)])
    np.savetxt(tmp_path / "train.csv", rows, "%g", ",")
    config = write_config(
        tmp_path,
        """global_batch: 16 epochs: 40 data { train: "train.csv" validation_fraction: 0.5 }
        model { name: "mlp" mlp { hidden: 64 } } optimizer { lr: 0.01 }
        checkpoint { every_minutes: 0 keep: 1 keep_best: "loss" }""",
    )
    # The labels are random, so the model only overfits: its validation loss is best in the first half of the run.
    whole, run_dir = tmp_path / "whole", tmp_path / "run"
    assert train(config, whole).status == DONE
    best, last = checkpoints(whole)
    assert best < last // 2
    env = dict(fault(run_dir, "ENOSPC", 1), FAULT_PATH=f"step-{best:012}")
    assert train(config, run_dir, env=env).status == DONE
    (failed,) = events(run_dir, "checkpoint_failed")
    assert failed["step"] == best
    saved = {e["step"] for e in events(run_dir, "checkpoint")}
    losses = {e["step"]: e["val_loss"] for e in events(run_dir, "eval") if e["step"] in saved}
    assert max(saved - {last}) > best and checkpoints(run_dir) == [min(losses, key=losses.get), last]


def test_a_log_that_cannot_be_written(tmp_path, undisturbed):
    """Checks that a run whose log cannot be written goes on without the log, and prints one line about it."""
    config = config_in(tmp_path)
    (_, whole, _), run_dir = undisturbed(None), tmp_path / "run"
    run = train(config, run_dir, env=dict(fault(run_dir, "ENOSPC", 8), FAULT_PATH=f"{run_dir}/log.jsonl"))
    assert run.status == DONE, run
    assert len(run.error_lines) == 1, run
    assert f"{run_dir}/log.jsonl: cannot be written: No space left" in run.error_lines[0], run
    assert 0 < len(whole_lines(run_dir)) < len(whole_lines(whole))
    assert weight_bytes(run_dir) == weight_bytes(whole)
    assert newest_of(run_dir) == STEPS


def test_a_disk_that_is_full(tmp_path):
    """Trains on a disk of 3 MiB. The disk is too small for a checkpoint, but has room for the weights after the
    unfinished checkpoint is deleted."""
    config = config_in(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    launcher = in_mount_namespace(tmp_path, f"mount -t tmpfs -o size=3m none {disk}")
    command = f"{LOCKSTEP} train {config} --set run_dir={disk}/run"
    script = f"{command}; status=$?; ls {disk}/run {disk}/run/checkpoints; exit $status"
    run = Run(["-c", script], program="sh", launcher=launcher)
    assert run.status == CHECKPOINT, run
    assert "No space left" in run.error_lines[-1], run
    assert f"step {STEPS}/{STEPS}" in run.out and "weights.safetensors" in run.out.split(), run
    left = run.out.split(f"{disk}/run/checkpoints:")[1].split()
    assert all(name.endswith(".partial") for name in left), run
