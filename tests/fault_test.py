"""Tests ranks that die, stop, disagree or hang, with a real mpirun and real signals. The run ends on all ranks within
the watchdog's limit + 5 s after the fault, one line names the rank at fault, no process is left, and the exit status is
that of docs/design.md. $REPEAT is the number of times that each test runs."""

import os
import signal
import time

import pytest

from harness import (
    BUG,
    DATA,
    DONE,
    LOCKSTEP,
    PEER,
    USAGE,
    Run,
    Started,
    digits_data,
    faulty_data,
    faulty_model,
    path_of,
    run_ranks,
    wait_until,
    wait_until_gone,
    write_config,
)

FAULTY = path_of("FAULTY")
RANKS = int(os.environ.get("RANKS", "2"))
LIMIT_S = 2  # seconds: the watchdog's limit in all tests of this file
MARGIN_S = 5
START_S = float(os.environ.get("START_S", "5"))  # seconds that a job may take to start and to reach the fault

THROW, KILL_RANK, KILL_MPIRUN, UNUSED_BIAS, STOP_RANK, SKIP_COLLECTIVE, NEVER_RETURN = range(1, 8)


@pytest.fixture(autouse=True, params=range(int(os.environ.get("REPEAT", "1"))))
def repeat(request):
    return request.param


def config_of(folder, model="", more="", name="config.pbtxt", graph="false", data=digits_data()):
    """Writes a config that uses no CUDA graph by default. The faults are in the model's forward, which the replay of a
    graph does not call."""
    return write_config(
        folder,
        f"""run_dir: "{folder}/run" epochs: 1000000 graph: {graph} {more}
        {data}
        watchdog {{ collective_timeout_s: {LIMIT_S} heartbeat_timeout_s: {LIMIT_S} }}
        model {{ {faulty_model(**model)} }}""",
        name,
    )


def expect_end(run, folder, status, *parts, lines=1):
    assert run.status == status, run
    assert run.seconds < START_S + LIMIT_S + MARGIN_S, run
    # A killed process may take a moment to end, so the test waits for it, at most MARGIN_S seconds.
    wait_until_gone(folder, MARGIN_S)
    assert len(run.error_lines) == lines, run
    for part in parts:
        assert part in "\n".join(run.error_lines), run


def faulty(folder, fault, more="", **model):
    return Run(["train", config_of(folder, dict(model, fault=fault), more)], ranks=RANKS, program=FAULTY, timeout=60)


# If a rank is missing, the error line contains these texts. They say that another rank is in step 35 or 36 ("step 3"
# matches both numbers; the fault is in step 36), and that it is in the collective of bucket 0, which has the parameters
# linear.bias and linear.weight.
WHERE = ["step 3", "collective", "bucket 0: linear.bias, linear.weight"]


def expect_story(folder):
    """Checks that `lockstep flight` prints the verdict, and the collectives in each rank's flight record."""
    story = Run(["flight", folder / "run"])
    assert story.status == DONE, story
    assert "verdict: rank " in story.out, story
    for rank in range(RANKS):
        assert f"  rank {rank} " in story.out, story
    assert "bucket 0: linear.bias, linear.weight" in story.out, story


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier("the other rank is killed in the same way", unless=lambda rank: rank == 1)
def test_a_rank_that_is_killed(rank, tmp_path):
    run = faulty(tmp_path, KILL_RANK, rank=rank, at=35)
    expect_end(run, tmp_path, PEER, f"error: rank {rank} died: its process is gone; rank {1 - rank} is at", *WHERE)
    expect_story(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier("the other rank is stopped in the same way", unless=lambda rank: rank == 0)
def test_a_rank_that_is_stopped(rank, tmp_path):
    run = faulty(tmp_path, STOP_RANK, rank=rank, at=35)
    expect_end(run, tmp_path, PEER, f"error: rank {rank} gives no sign of life for 2 s", "stopped", *WHERE)
    expect_story(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier("the other rank is late in the same way", unless=lambda rank: rank == 1)
def test_a_rank_that_is_late(rank, tmp_path):
    run = faulty(tmp_path, NEVER_RETURN, rank=rank, at=35)
    expect_end(run, tmp_path, PEER, f"error: rank {rank} has not come to", "of step 36", *WHERE)
    expect_story(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier("the other rank skips a collective in the same way", unless=lambda rank: rank == 1)
def test_a_rank_that_skips_a_collective(rank, tmp_path):
    run = faulty(tmp_path, SKIP_COLLECTIVE, "ddp { sync_batch_norm: true }", norm=1, rank=rank, at=35)
    # With two ranks no majority shows which rank is wrong, so the line is the same whichever rank skips the collective.
    expect_end(run, tmp_path, PEER, "error: rank 1 made another call than rank 0 as", "step 36", "BatchNorm's statistics")


@pytest.mark.parametrize("rank,at", [(0, 0), (1, 0), (1, 35)])
@pytest.mark.all_tier(
    "other ranks and the first step throw in the same way",
    unless=lambda rank, at: (rank, at) == (1, 35),
)
def test_a_rank_that_throws(rank, at, tmp_path):
    expect_end(faulty(tmp_path, THROW, rank=rank, at=at), tmp_path, BUG, f"error: rank {rank}: the model broke")


@pytest.mark.parametrize("rank,at", [(0, 0), (1, 0), (1, 35)])
@pytest.mark.all_tier(
    "other ranks and steps leave out a gradient in the same way",
    unless=lambda rank, at: (rank, at) == (1, 0),
)
def test_a_parameter_that_one_rank_does_not_use(rank, at, tmp_path):
    run = faulty(tmp_path, UNUSED_BIAS, rank=rank, at=at)
    expect_end(run, tmp_path, USAGE, f"error: rank {rank}: no gradient for 1 of 2 parameters (linear.bias)")


@pytest.mark.parametrize("rank,at", [(0, 0), (1, 0), (1, 5000)])
@pytest.mark.all_tier("other ranks and samples fail in the same way", unless=lambda rank, at: (rank, at) == (1, 5000))
def test_an_exception_in_one_ranks_loader(rank, at, tmp_path):
    config = config_of(tmp_path, {}, "loader { threads: 1 }", data=faulty_data(rank=rank, at=at))
    run = Run(["train", config], ranks=RANKS, program=FAULTY, timeout=60)
    expect_end(run, tmp_path, DATA, f"error: rank {rank}: picture-", "the file is cut short")


def test_mpirun_is_killed(tmp_path):
    run = faulty(tmp_path, KILL_MPIRUN, rank=1, at=35)
    expect_end(run, tmp_path, PEER, "error: mpirun was killed by signal 9 (Killed), and all of the job with it")


@pytest.fixture
def job(tmp_path):
    """Yields a running job that has logged at least two steps. The job is killed after the test, whatever the test's
    result."""
    config = config_of(tmp_path, {}, graph="true")
    with Started(config, tmp_path / "run", RANKS, program=FAULTY) as job:
        job.wait_for("step", 2)
        yield job


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier(
    "either rank is killed and stopped in a step by the tests above",
    unless=lambda rank, sent: rank == 0 and sent == signal.SIGKILL,
)
def test_a_rank_is_lost_between_steps(rank, sent, job, tmp_path):
    """Kills or stops a rank by a signal at any moment of the training. On GPUs the rank replays CUDA graphs at that
    time."""
    os.kill(job.rank(rank), sent)
    assert job.process.wait(timeout=LIMIT_S + MARGIN_S) == PEER, job.texts()
    error = job.texts()[1]
    expected = "died: its process is gone" if sent == signal.SIGKILL else f"gives no sign of life for {LIMIT_S} s"
    assert f"error: rank {rank} {expected}" in error, error
    wait_until_gone(tmp_path, MARGIN_S)


def test_the_command_itself_is_killed(job, tmp_path):
    job.process.kill()
    assert job.process.wait(timeout=MARGIN_S + 5) == -signal.SIGKILL
    wait_until_gone(tmp_path, MARGIN_S)


def test_a_job_that_is_stopped_whole_goes_on(job, tmp_path):
    """Checks that no rank is blamed for the time during which all ranks were stopped. Slurm suspends and resumes jobs
    in this way."""
    ranks = job.ranks().values()
    assert len(ranks) == RANKS
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    time.sleep(2 * LIMIT_S)  # the ranks stay stopped for twice the watchdog's limit
    log = tmp_path / "run" / "log.jsonl"
    steps = log.read_text().count("\n")
    for rank in ranks:
        os.kill(rank, signal.SIGCONT)
    wait_until(lambda: log.read_text().count("\n") > steps + 100, 30)
    job.process.terminate()
    job.process.wait(timeout=MARGIN_S + 5)
    assert "error" not in job.texts()[1]


def test_ranks_with_different_configs(tmp_path):
    first = config_of(tmp_path, {}, "optimizer { lr: 0.5 }", "first.pbtxt")
    second = config_of(tmp_path, {}, "optimizer { lr: 0.25 }", "second.pbtxt")
    run = run_ranks([FAULTY, "train", first], [FAULTY, "train", second])
    expect_end(run, tmp_path, USAGE, "error: rank 1: optimizer.lr: 0.25 where rank 0 has optimizer.lr: 0.5")
    assert not (tmp_path / "run").exists()


def test_ranks_with_different_models(tmp_path):
    run = run_ranks(*[[FAULTY, "train", config_of(tmp_path, {"name_by_rank": 1})]] * 2)
    expect_end(run, tmp_path, USAGE, "error: rank 1: linear1.weight of Float [10, 64] where rank 0 has linear0.weight")


def test_ranks_with_different_programs(tmp_path):
    config = config_of(tmp_path, {})
    run = run_ranks([FAULTY, "train", config], [LOCKSTEP, "train", config])
    expect_end(run, tmp_path, USAGE, "error: rank 1: program of ", "where rank 0 has program of ")


def test_ranks_with_different_commands(tmp_path):
    config = config_of(tmp_path, {})
    run = run_ranks([FAULTY, "train", config], [FAULTY, "evaluate", tmp_path])
    expect_end(run, tmp_path, USAGE, "error: rank 1: command evaluate where rank 0 has command train")
