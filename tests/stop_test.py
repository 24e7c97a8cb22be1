"""Tests runs that are asked to stop, by a signal to any of their processes, by a STOP file, or by a time limit: all
ranks end after the same step with the state committed, and the run resumes as if it had not stopped. A run that is
asked for a checkpoint writes it and trains on."""

import datetime
import os
import pathlib
import re
import shutil
import signal

import pytest

from harness import (
    CHECKPOINT,
    DEVICE,
    DONE,
    INTERRUPTED,
    SMALL_MLP,
    STOPPED,
    USAGE,
    Run,
    Started,
    checkpoint_folder,
    checkpoints,
    digits_config,
    events,
    expect_error,
    faulty_data,
    faulty_model,
    losses_by_step,
    path_of,
    sets,
    skip_without_gpus,
    train,
    wait_until,
    weight_bytes,
    write_config,
)

FAULT_AT = path_of("FAULT_AT_SO")
FAULTY = path_of("FAULTY")
MLP = 'model { name: "mlp" }'
LATE = 16 if DEVICE == "CUDA" else 1  # limit on the steps after a request; on GPUs the host queues steps ahead


def config_in(folder, more="", model=SMALL_MLP):
    return write_config(folder, digits_config(f"checkpoint {{ every_epochs: 0 {more} }}", model=model))


def signals_in(pid, field):
    mask = re.search(rf"^{field}:\s*(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def expect_goes_on(tmp_path, config, run_dir, ranks, step):
    """Checks that the run resumes from `step`, with the losses of a run that was not stopped."""
    whole = tmp_path / "whole"
    for folder in (run_dir, whole):
        run = train(config, folder, *sets(f"max_steps={step + 20}"), ranks=ranks)
        assert run.status == DONE, run
    assert [e["step"] for e in events(run_dir, "resume")] == [step]
    assert losses_by_step(run_dir) == losses_by_step(whole)
    assert weight_bytes(run_dir) == weight_bytes(whole)


def expect_stopped(tmp_path, config, job, ranks, status):
    returned, out, err = job.end()
    assert returned == status, (returned, out, err)
    (stopped,) = events(job.run_dir, "stopped")
    step = stopped["step"]
    assert f"stopped after step {step} of " in out, (out, err)
    assert checkpoints(job.run_dir) == [step]
    assert max(losses_by_step(job.run_dir)) == step
    assert not (job.run_dir / "weights.safetensors").exists()
    expect_goes_on(tmp_path, config, job.run_dir, ranks, step)


# The cases in every commit's tests: every signal, target (none, the first rank, the last rank) and number of ranks at
# least once.
IN_COMMITS = [(None, None, signal.SIGINT), (2, None, signal.SIGHUP), (2, 0, signal.SIGTERM), (3, 2, signal.SIGUSR2)]


@pytest.mark.parametrize(
    "ranks,target,number,status",
    [
        (None, None, signal.SIGUSR2, STOPPED),
        (None, None, signal.SIGTERM, STOPPED),
        (None, None, signal.SIGHUP, STOPPED),
        (None, None, signal.SIGINT, INTERRUPTED),
        (2, None, signal.SIGUSR2, STOPPED),
        (2, None, signal.SIGTERM, STOPPED),
        (2, None, signal.SIGHUP, STOPPED),
        (2, None, signal.SIGINT, INTERRUPTED),
        (2, 0, signal.SIGTERM, STOPPED),
        (2, 1, signal.SIGTERM, STOPPED),
        (2, 1, signal.SIGUSR2, STOPPED),
        (2, 1, signal.SIGINT, INTERRUPTED),
        (3, 2, signal.SIGUSR2, STOPPED),
    ],
)
@pytest.mark.all_tier(
    "each signal, target and number of ranks is tried in another combination",
    unless=lambda ranks, target, number: (ranks, target, number) in IN_COMMITS,
)
def test_a_signal_stops_all_ranks_after_the_same_step(tmp_path, ranks, target, number, status):
    """Sends the signal to the process of rank `target`, or, if this is None, to the process that the user started."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 7)
        os.kill(job.process.pid if target is None else job.rank(target), number)
        expect_stopped(tmp_path, config, job, ranks, status)


def test_a_signal_before_the_first_step(tmp_path):
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run") as job:
        wait_until(lambda: signal.SIGUSR2 in signals_in(job.process.pid, "SigCgt"))
        os.kill(job.process.pid, signal.SIGUSR2)
        expect_stopped(tmp_path, config, job, None, STOPPED)


def test_a_signal_before_the_ranks_have_met(tmp_path):
    """Sends a signal at a time when it would kill mpirun or its ranks. The program holds the signal back until the
    ranks can handle it."""
    skip_without_gpus(2)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", 2) as job:
        wait_until(job.children)
        os.kill(job.process.pid, signal.SIGUSR2)
        expect_stopped(tmp_path, config, job, 2, STOPPED)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank makes its folder again as two do", unless=lambda ranks: ranks == 2)
def test_a_folder_that_is_removed(tmp_path, ranks):
    """Removes the run folder during training. The run ends, and saves its state in a folder that it creates again; the
    same command resumes from there."""
    skip_without_gpus(ranks or 1)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 7)
        (tmp_path / "run").rename(tmp_path / "gone")  # a rename takes effect at once, unlike removing
        shutil.rmtree(tmp_path / "gone")
        status, out, err = job.end()
    assert status == INTERRUPTED, err
    assert "(its folder was removed): the same command goes on from there" in out
    (stopped,) = events(tmp_path / "run", "stopped")
    again = train(config, tmp_path / "run", "--set", f"max_steps={stopped['step'] + 5}", ranks=ranks)
    assert again.status == DONE, again
    assert events(tmp_path / "run", "resume")[0]["step"] == stopped["step"]


def test_a_folder_that_is_replaced(tmp_path):
    """Puts another job's run folder in the place of the first job's. The other job's files stay, and the first job's
    files are where they were moved to."""
    config = config_in(tmp_path, "every_steps: 10")
    run_dir = tmp_path / "run"
    with Started(config, run_dir) as job:
        job.wait_for("checkpoint")
        # The job is suspended, so that it does not see that the folder is missing before the other job starts.
        os.kill(job.process.pid, signal.SIGSTOP)
        run_dir.rename(tmp_path / "moved")
        assert train(config, run_dir, "--set", "max_steps=5").status == DONE
        os.kill(job.process.pid, signal.SIGCONT)
        status, _, err = job.end()
    assert status == CHECKPOINT, err
    assert "run: another job trains there, since this one's folder was moved or removed" in err
    assert checkpoints(tmp_path / "moved")
    assert len(events(run_dir, "start")) == 1 and len(events(run_dir, "done")) == 1


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("by", ["file", "command"])
@pytest.mark.all_tier(
    "the file and the command are each tried on one number of ranks already",
    unless=lambda ranks, by: (ranks, by) in ((None, "file"), (2, "command")),
)
def test_its_user_stops_it(tmp_path, ranks, by):
    """Stops a run with a STOP file or with `lockstep stop`, as is possible on any machine that sees the run folder.
    Exit status 130 tells a supervisor not to start the job again."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 7)
        if by == "file":
            (job.run_dir / "STOP").touch()
        else:
            run = Run(["stop", job.run_dir])
            assert run.status == DONE, run
            (step,) = checkpoints(job.run_dir)
            assert run.out.strip() == str(checkpoint_folder(job.run_dir, step))
        expect_stopped(tmp_path, config, job, ranks, INTERRUPTED)
    assert events(job.run_dir, "stopped")[0]["why"] == "its user's STOP"
    assert not (job.run_dir / "STOP").exists()
    expect_error(Run(["stop", job.run_dir]), USAGE, f"{job.run_dir}: no job trains in it now")


def test_a_stop_that_was_left_for_the_next_start(tmp_path):
    """Checks that a STOP file that exists before the start stops the run, like one that is written while a job waits
    for a restart."""
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run") as job:
        job.wait_for("step", 7)
        assert job.stop()[0] == STOPPED
    before = checkpoints(job.run_dir)[-1]
    (job.run_dir / "STOP").touch()
    assert train(config, job.run_dir).status == INTERRUPTED
    assert before < checkpoints(job.run_dir)[-1] <= before + LATE
    assert not (job.run_dir / "STOP").exists()


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("limit", ["budget", "clock"])
@pytest.mark.all_tier(
    "the budget and the clock are each tried on one number of ranks already",
    unless=lambda ranks, limit: (ranks, limit) in ((2, "budget"), (None, "clock")),
)
def test_a_time_limit(tmp_path, ranks, limit):
    """Checks that a job with a time limit stops by itself. The test measures no times."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    if limit == "budget":
        words = ["--time-budget", "3s"]
    else:
        words = ["--stop-at", f"{datetime.datetime.now() + datetime.timedelta(seconds=3):%Y-%m-%d %H:%M:%S}"]
    run = train(config, tmp_path / "run", *words, ranks=ranks)
    assert run.status == STOPPED, run
    (stopped,) = events(tmp_path / "run", "stopped")
    assert stopped["why"] == "its time is over"
    assert checkpoints(tmp_path / "run") == [stopped["step"]]
    expect_goes_on(tmp_path, config, tmp_path / "run", ranks, stopped["step"])


def test_no_time_at_all(tmp_path):
    """Checks that each start makes at least one step, even if its time is over, so that the run advances."""
    config = config_in(tmp_path)
    before = 0
    for _ in range(2):
        run = train(config, tmp_path / "run", "--stop-at", "2026-01-01 00:00")
        assert run.status == STOPPED, run
        assert before < checkpoints(tmp_path / "run")[-1] <= before + LATE
        before = checkpoints(tmp_path / "run")[-1]


@pytest.mark.parametrize("words,part", [(["--time-budget", "8"], "\"8\" is no length of time"), (["--stop-at", "noon"], "is no time")])
@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier(
    "each option is refused on one number of ranks already",
    unless=lambda ranks, words: (ranks, words[0]) in ((None, "--time-budget"), (2, "--stop-at")),
)
def test_a_time_that_is_none(tmp_path, words, part, ranks):
    run = train(config_in(tmp_path), tmp_path / "run", *words, ranks=ranks)
    expect_error(run, USAGE, part)
    assert not (tmp_path / "run").exists()


def test_a_second_interrupt_ends_the_process(tmp_path):
    """Checks that a second SIGINT ends the process. The first one has no effect here, because the model never returns.
    """
    config = config_in(tmp_path, model=faulty_model(fault=7, at=5))
    with Started(config, tmp_path / "run", program=FAULTY) as job:
        job.wait_for("step", 5)
        pid = job.process.pid
        os.kill(pid, signal.SIGINT)
        wait_until(lambda: signal.SIGINT not in signals_in(pid, "ShdPnd") | signals_in(pid, "SigPnd"))
        assert job.process.poll() is None
        os.kill(pid, signal.SIGINT)
        assert job.end()[0] == -signal.SIGINT


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("two ranks end at once as one does", unless=lambda ranks: ranks is None)
def test_what_does_not_come_to_train_ends_at_once(tmp_path, ranks):
    """Sends a signal to a job whose data set never finishes loading. The program waits five seconds before the signal
    ends it."""
    skip_without_gpus(ranks or 1)
    config = write_config(tmp_path, faulty_data(hang=1) + MLP)
    with Started(config, tmp_path / "run", ranks, program=FAULTY) as job:
        wait_until(lambda: signal.SIGUSR2 in signals_in(job.process.pid, "SigBlk" if ranks else "SigCgt"))
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.end()[0] == (128 + signal.SIGTERM if ranks else -signal.SIGTERM)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank saves on demand as two do", unless=lambda ranks: ranks == 2)
def test_a_checkpoint_on_demand(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "keep: 100")
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 3)
        for count in (1, 2):
            run = Run(["checkpoint", job.run_dir])
            assert run.status == DONE, run
            newest = checkpoints(job.run_dir)[-1]
            assert run.out.strip() == str(checkpoint_folder(job.run_dir, newest))
            assert len(checkpoints(job.run_dir)) >= count
        assert Run(["verify", job.run_dir]).status == DONE
        assert not (job.run_dir / "checkpoint.request").exists()
        assert job.stop()[0] == STOPPED
    # The run trains on without writing further checkpoints.
    made = [e["step"] for e in events(job.run_dir, "checkpoint")]
    assert made == checkpoints(job.run_dir) and len(made) <= 5, made
    expect_error(Run(["checkpoint", job.run_dir]), USAGE, f"{job.run_dir}: no job trains in it now")


def test_a_checkpoint_on_demand_that_cannot_be_written(tmp_path):
    run_dir = tmp_path / "run"
    env = {"LD_PRELOAD": FAULT_AT, "FAULT": "ENOSPC", "FAULT_AT": "3", "FAULT_PATH": f"{run_dir}/checkpoints/"}
    with Started(config_in(tmp_path), run_dir, env=env) as job:
        job.wait_for("step", 3)
        expect_error(Run(["checkpoint", run_dir]), CHECKPOINT, "there is no new checkpoint", "log.jsonl says why")
        assert "No space left" in events(run_dir, "checkpoint_failed")[0]["reason"]
        status, _, err = job.stop()
        assert status == CHECKPOINT and "No space left" in err.splitlines()[-1], err


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank saves by the clock as two do", unless=lambda ranks: ranks == 2)
def test_by_the_clock(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "every_minutes: 0.001")
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("checkpoint", 3)
        assert job.stop()[0] == STOPPED
    (stopped,) = events(job.run_dir, "stopped")
    assert checkpoints(job.run_dir)[-1] == stopped["step"]
