"""Tests that --restarts starts failed jobs again from their newest checkpoint, unless another start would be useless.
"""

import os
import re
import signal

import pytest

from harness import (
    BUG,
    DATA,
    DONE,
    INTERRUPTED,
    SMALL_MLP,
    STOPPED,
    USAGE,
    Run,
    Started,
    digits_config,
    digits_data,
    events,
    expect_error,
    faulty_data,
    faulty_model,
    log_text,
    losses_by_step,
    mpirun,
    needs_gpus,
    path_of,
    skip_without_gpus,
    train,
    write_config,
)

FAULTY = path_of("FAULTY")
FAULTS = path_of("MACHINE_FAULTS_SO")
THROW = 1
FURTHER = 20  # steps that each start makes beyond the last failure, so that the next restart waits only 1 s


def config_in(folder, more="", model=SMALL_MLP, data=digits_data()):
    """Writes a config without a CUDA graph, because a graph's replays do not call the model that fails."""
    return write_config(folder, digits_config(f"graph: false {more}", data, model, optimizer=""))


def last_checkpoint(run_dir):
    return max(map(int, re.findall(r'^{"event":"checkpoint","time":[\d.]+,"step":(\d+),', log_text(run_dir), re.M)), default=0)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank is started again as two are", unless=lambda ranks: ranks == 2)
def test_a_job_goes_on_by_itself(tmp_path, ranks):
    """Kills processes of a job twice. The job resumes by itself each time, and is stopped at last. Its losses must be
    those of an undisturbed run."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "checkpoint { every_steps: 20 }")
    run_dir = tmp_path / "run"
    with Started(config, run_dir, ranks, ["--restarts", "5"]) as job:
        furthest = 0
        for starts in (1, 2):
            job.wait_for("start", starts)
            job.wait_until(lambda: last_checkpoint(run_dir) > furthest + FURTHER)
            os.kill(job.rank(0) if ranks else job.child(), signal.SIGKILL)
            job.wait_for_text(f"; restart {starts} of 5 follows")
            furthest = int(re.findall(r"at step (\d+); restart", job.texts()[1])[-1])
        job.wait_for("start", 3)
        job.wait_until(lambda: last_checkpoint(run_dir) > furthest)
        status, _, err = job.stop()
    assert status == STOPPED, err
    assert [e["restarts"] for e in events(run_dir, "start")] == [0, 1, 2]
    assert len(events(run_dir, "resume")) == 2
    assert err.count("lockstep: warning: the job failed with status 5 at step ") == 2, err
    for number in (1, 2):
        assert f"; restart {number} of 5 follows in 1 s" in err, err
    (stopped,) = events(run_dir, "stopped")
    whole = train(config, tmp_path / "whole", "--set", f"max_steps={stopped['step']}", ranks=ranks)
    assert whole.status == DONE, whole
    # A killed process may have logged steps after its last checkpoint that the resumed run has not made again.
    losses = {step: loss for step, loss in losses_by_step(run_dir).items() if step <= stopped["step"]}
    assert losses == losses_by_step(tmp_path / "whole")


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("two ranks get no further in the same way as one", unless=lambda ranks: ranks is None)
def test_a_job_that_gets_no_further(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, model=faulty_model(fault=THROW, at=35))
    run = train(config, tmp_path / "run", "--restarts", "100", ranks=ranks, program=FAULTY)
    assert run.status == BUG, run
    assert len(events(tmp_path / "run", "start")) == 3
    assert run.err.count("the model broke") == 3, run
    last = run.error_lines[-1]
    # The fault is in step 36. The step of a job with one rank is read from its log, which on GPUs is some steps behind.
    assert re.match(r"lockstep: error: the job failed with status 70 at step (2[5-9]|3\d);", last), run
    assert "; not started again, as it failed 3 times and came no further than step " in last, run
    assert "restart 2 of 100 follows in 5 s" in run.err, run


def test_all_restarts_are_used_up(tmp_path):
    config = config_in(tmp_path, model=faulty_model(fault=THROW, at=35))
    run = train(config, tmp_path / "run", "--restarts=1", program=FAULTY)
    assert run.status == BUG, run
    assert len(events(tmp_path / "run", "start")) == 2
    assert run.error_lines[-1].endswith("; not started again, as --restarts allows no more than 1"), run


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("an error on one rank stays as on two", unless=lambda ranks: ranks == 2)
def test_what_is_wrong_for_good_is_not_repeated(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "loader { threads: 1 }", data=faulty_data(at=2000))
    run = train(config, tmp_path / "run", "--restarts", "3", ranks=ranks, program=FAULTY)
    assert run.status == DATA, run
    assert len(events(tmp_path / "run", "start")) == 1
    assert run.error_lines[-1].endswith("; not started again, as status 3 would come again"), run


def test_a_stop_while_the_job_waits_to_be_started_again(tmp_path):
    """Checks that a job that is stopped while it waits for a restart ends, and is not started again."""
    config = config_in(tmp_path, model=faulty_model(fault=THROW, at=35))
    run_dir = tmp_path / "run"
    with Started(config, run_dir, None, ["--restarts", "9"], program=FAULTY) as job:
        job.wait_for_text("restart 2 of 9 follows in 5 s")
        status, _, err = job.stop()
    assert status == STOPPED, err
    assert len(events(run_dir, "start")) == 2


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("two ranks start afresh as one does", unless=lambda ranks: ranks is None)
def test_fresh_is_for_the_first_start_alone(tmp_path, ranks):
    """Checks that --fresh is only for the first start. If it held for restarts as well, each restart would discard
    the steps of the start before."""
    skip_without_gpus(ranks or 1)
    config = config_in(tmp_path, "checkpoint { every_steps: 10 }")
    run_dir = tmp_path / "run"
    first = train(config, run_dir, "--set", "max_steps=5", ranks=ranks)
    assert first.status == DONE, first
    with Started(config, run_dir, ranks, ["--fresh", "--restarts", "1"]) as job:
        job.wait_until(lambda: last_checkpoint(run_dir) > 5)
        os.kill(job.rank(0) if ranks else job.child(), signal.SIGKILL)
        job.wait_for("resume")
        status, _, err = job.stop()
    assert status == STOPPED, err
    assert (tmp_path / "run.1/weights.safetensors").exists() and not (tmp_path / "run.2").exists()
    assert [e["restarts"] for e in events(run_dir, "start")] == [0, 1]
    assert events(run_dir, "resume")[0]["step"] >= 10


def test_a_stop_that_came_before_a_failure(tmp_path):
    """Checks that a failed job is not started again if its user had asked it to stop before it failed."""
    config = config_in(tmp_path, "checkpoint { every_steps: 10 }")
    run_dir = tmp_path / "run"
    with Started(config, run_dir, None, ["--restarts", "9"]) as job:
        job.wait_for("checkpoint", 1)
        rank = job.child()
        os.kill(rank, signal.SIGSTOP)
        (run_dir / "STOP").touch()
        os.kill(rank, signal.SIGKILL)
        status, _, err = job.end()
    assert status == INTERRUPTED and "its user's STOP is there: it is not started again" in err, err
    assert not (run_dir / "STOP").exists()
    assert len(events(run_dir, "start")) == 1


def test_a_restart_when_the_time_is_over(tmp_path):
    """Checks that a time limit is fixed at the first start. If a restart computed the limit again from a time of day
    that is past, the limit would be on the next day."""
    config = config_in(tmp_path, model=faulty_model(fault=THROW, at=35))
    run = train(config, tmp_path / "run", "--restarts", "9", "--time-budget", "3s", program=FAULTY)
    assert run.status == STOPPED, run
    # The time may be over during a step, or while the job waits for a restart.
    assert "; its time is over: the same command goes on another time" in run.err or events(tmp_path / "run", "stopped"), run


def test_only_training_is_repeated(tmp_path):
    expect_error(Run(["--restarts", "2", "evaluate", tmp_path]), USAGE, "--restarts: only train goes on by itself")


def test_inside_mpirun(tmp_path):
    config = config_in(tmp_path)
    run = Run(["--restarts", "2", "train", config], launcher=mpirun(1))
    expect_error(run, USAGE, "--restarts inside mpirun or srun: leave it out")


def test_a_gpu_that_breaks(tmp_path):
    """Checks that the job goes on with the other GPU. Its steps must agree up to rounding with those on two GPUs: one
    GPU sums in another order."""
    needs_gpus(2)
    import torch

    config = config_in(tmp_path, "checkpoint { every_steps: 20 }", model='name: "mlp" mlp { hidden: [24] }')
    run_dir = tmp_path / "run"
    broken = tmp_path / "broken"
    faults = {"LD_PRELOAD": FAULTS, "BROKEN_GPU": str(broken)}
    with Started(config, run_dir, 2, ["--restarts", "5", "--elastic"], env=faults) as job:
        job.wait_for("checkpoint", 2)
        (tmp_path / "uuid").write_text(str(torch.cuda.get_device_properties(1).uuid).replace("-", ""))
        (tmp_path / "uuid").rename(broken)
        job.wait_for("start", 2)
        job.wait_for("checkpoint", 4)
        status, _, err = job.stop()
    assert status == STOPPED, err
    assert [e["world_size"] for e in events(run_dir, "start")] == [2, 1]
    assert "lockstep: warning: going on with GPU GPU-" in err, err
    (stopped,) = events(run_dir, "stopped")
    whole = train(config, tmp_path / "whole", "--set", f"max_steps={stopped['step']}", ranks=2)
    assert whole.status == DONE, whole
    (resume,) = events(run_dir, "resume")
    seen, expected = losses_by_step(run_dir), losses_by_step(tmp_path / "whole")
    assert all(seen[step] == expected[step] for step in range(1, resume["step"] + 1))
    for step in range(resume["step"] + 1, resume["step"] + 21):
        assert seen[step] == pytest.approx(expected[step], rel=1e-3), step


def test_elastic_alone(tmp_path):
    run = train(config_in(tmp_path), tmp_path / "run", "--elastic")
    expect_error(run, USAGE, "--elastic says how a job goes on: add --restarts")
