"""Ends jobs in every way, at random moments, on 1, 2 and 4 ranks, and under Open MPI 5 on 1 to 3 ranks. The command that
started a job then resumes its run. In the end each loss and weight is that of an undisturbed run, no process or file is
left over, and the exit status is the one in docs/running.md. $ENDINGS is the number of repetitions of each case; $SEED
is the seed of the random moments."""

import fcntl
import os
import pathlib
import random
import re
import signal
import termios
import time

import pytest

from harness import (
    DEVICE,
    DONE,
    INTERRUPTED,
    LONG_S,
    PEER,
    STOPPED,
    Started,
    checkpoints,
    digits_config,
    digits_data,
    events,
    losses_by_step,
    mpirun,
    processes_of,
    runs_by_ranks,
    skip_without_gpus,
    train,
    wait_until_gone,
    weight_bytes,
    write_config,
)
from open_mpi_5 import open_mpi_5  # noqa: F401: it is a fixture

ENDINGS = int(os.environ.get("ENDINGS", "1"))
SEED = int(os.environ.get("SEED", "0"))
MOMENTS_UNDER_5 = max(4, ENDINGS)  # the number of moments of each ending under Open MPI 5
STEPS = {1: 4000, 2: 2000, 3: 500, 4: 300}  # number of ranks -> steps; a run takes about two seconds


class Job(Started):
    """Runs a job on a pseudo-terminal of its own."""

    def __init__(self, config, run_dir, ranks, words=(), own_mpirun=False, env=None):
        self.keyboard, terminal = os.openpty()
        super().__init__(
            config,
            run_dir,
            ranks=None if own_mpirun else ranks,
            words=words,
            launcher=mpirun(ranks) if own_mpirun else (),
            env=env,
            stdin=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)

    def __exit__(self, *unused):
        for pid in processes_of(self.run_dir):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.keyboard)

    def type(self, text):
        os.write(self.keyboard, text)

    def mpiruns(self):
        """Returns the ids of the job's mpirun processes, which Open MPI 5 calls prterun."""
        programs = {pid: command.split()[0] for pid, command in processes_of(self.run_dir).items()}
        return [pid for pid, program in programs.items() if program.endswith(("mpirun", "prterun"))]

    def computing(self):
        """Returns the process ids of the job's ranks, or the id of its only process."""
        return list(self.ranks().values()) or [self.process.pid]

    def scratch(self):
        """Returns the folders in shared memory in which the job keeps files."""
        found = set()
        for pid in processes_of(self.run_dir):
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
            except OSError:  # the process has ended
                continue
            found |= {v.split("=")[1] for v in variables if "_tmpdir_base=/dev/shm/lockstep-" in v}
        return found

    def status(self):
        """Returns the job's exit status as a shell reports it, which is 128 + N if signal N ended the job."""
        code = self.process.wait(timeout=LONG_S)
        return code if code >= 0 else 128 - code


def kill(pids, number, dice=None):
    """Sends the signal `number` to all processes in `pids`, or only to one of them that is drawn with `dice`."""
    for pid in [dice.choice(list(pids))] if dice and pids else pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # the process has ended
            pass


# Maps each way to end a job to (a function that ends the job, or None for a job that ends by itself; the exit statuses
# that the job may have). A job may also have the status 0, if it finished before it could be ended.
ENDS = {
    "Ctrl-C": (lambda job, dice: job.type(b"\x03"), {INTERRUPTED}),
    "Ctrl-C twice": (lambda job, dice: job.type(b"\x03\x03"), {INTERRUPTED}),
    "SIGTERM": (lambda job, dice: kill([job.process.pid], signal.SIGTERM), {STOPPED, 128 + signal.SIGTERM}),
    "SIGTERM to a rank": (
        lambda job, dice: kill(job.computing(), signal.SIGTERM, dice),
        {STOPPED, PEER, 128 + signal.SIGTERM},
    ),
    "SIGTERM to mpirun": (lambda job, dice: kill(job.mpiruns(), signal.SIGTERM), {STOPPED, 1, 143}),
    "SIGHUP": (lambda job, dice: kill([job.process.pid], signal.SIGHUP), {STOPPED, 128 + signal.SIGHUP}),
    "SIGUSR2": (lambda job, dice: kill([job.process.pid], signal.SIGUSR2), {STOPPED, 128 + signal.SIGUSR2}),
    "STOP": (lambda job, dice: stop_file(job), {INTERRUPTED}),
    "time budget": (None, {STOPPED}),
    "kill -9 of a rank": (lambda job, dice: kill(job.computing(), signal.SIGKILL, dice), {PEER, 128 + 9}),
    "kill -9 of mpirun": (lambda job, dice: kill(job.mpiruns(), signal.SIGKILL), {PEER, 128 + 9}),
    "kill -9 of the command": (lambda job, dice: kill([job.process.pid], signal.SIGKILL), {128 + 9}),
    "kill -9 of everything": (lambda job, dice: kill(processes_of(job.run_dir), signal.SIGKILL), {128 + 9}),
    "SIGHUP to a rank": (
        lambda job, dice: kill(job.computing(), signal.SIGHUP, dice),
        {STOPPED, PEER, 128 + signal.SIGHUP},
    ),
    "SIGUSR2 to a rank": (
        lambda job, dice: kill(job.computing(), signal.SIGUSR2, dice),
        {STOPPED, PEER, 128 + signal.SIGUSR2},
    ),
    # A signal that comes before all processes have handlers for it ends one of them.
    "SIGUSR2 to mpirun": (
        lambda job, dice: kill(job.mpiruns(), signal.SIGUSR2),
        {STOPPED, PEER, 128 + signal.SIGUSR2},
    ),
    "Ctrl-C to mpirun": (lambda job, dice: job.type(b"\x03"), {STOPPED, 1, INTERRUPTED}),
}
# The user starts mpirun in these cases.
OF_OWN_MPIRUN = {"SIGTERM to mpirun", "SIGUSR2 to mpirun", "Ctrl-C to mpirun"}
OF_MPIRUN = OF_OWN_MPIRUN | {"kill -9 of mpirun"}
ONLY_IN_ALL = {"SIGHUP to a rank", "SIGUSR2 to a rank", "SIGUSR2 to mpirun", "Ctrl-C to mpirun"}
# stop_test.py and signals_test.py end jobs in these ways on every commit.
IN_OTHER_TESTS = {"SIGTERM", "SIGHUP", "SIGUSR2", "STOP", "time budget"}
# Maps each way to end a job to the number of ranks with which every commit's tests try it.
IN_COMMITS = {
    end: 2 if end in OF_MPIRUN else (1, 2, 4)[number % 3]
    for number, end in enumerate(ENDS)
    if end not in ONLY_IN_ALL | IN_OTHER_TESTS
}


def stop_file(job):
    if job.run_dir.is_dir():
        (job.run_dir / "STOP").touch()


def config_in(folder, ranks):
    more = f"max_steps: {STEPS[ranks]} checkpoint {{ every_steps: 50 }}"
    return write_config(folder, digits_config(more, digits_data("validation_fraction: 0.2")))


def names_in(folder):
    """Returns the names of the files and folders below `folder`, without complete checkpoints, whose number depends on
    the disk's speed."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    return sorted(name for name in names if not re.fullmatch(r"checkpoints/step-\d{12}(/[^/]*)?", name))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return runs_by_ranks(tmp_path_factory, config_in)


@pytest.fixture(scope="module")
def undisturbed_under_5(tmp_path_factory, open_mpi_5):
    return runs_by_ranks(tmp_path_factory, config_in, env=open_mpi_5)


def expect_ending(end, ranks, name, tmp_path, undisturbed, env=None):
    """Ends a job of `ranks` ranks in the way `end`, and resumes it. `name` decides the random moment."""
    dice = random.Random(f"{SEED} {name}")
    config, whole, seconds = undisturbed(ranks)
    # The test ends the job `moment` seconds after the job's start, whatever the job is doing.
    moment = dice.uniform(0, seconds)
    act, statuses = ENDS[end]
    run_dir = tmp_path / "run"
    words = [] if act else ["--time-budget", f"{1 + moment:.3f}s"]
    with Job(config, run_dir, ranks, words, own_mpirun=end in OF_OWN_MPIRUN, env=env) as job:
        time.sleep(moment)
        scratch = job.scratch()
        if act:
            act(job, dice)
        status = job.status()
        ends = "\n".join(line for text in job.texts() for line in text.splitlines()[-6:])
        what = f"{end} after {moment:.3f} s: status {status}\n{ends}"
        assert status in statuses | {DONE}, what
        wait_until_gone(run_dir)
    stopped = events(run_dir, "stopped") if (run_dir / "log.jsonl").exists() else []
    if stopped and status == STOPPED:
        assert checkpoints(run_dir)[-1] == stopped[-1]["step"], what

    again = train(config, run_dir, ranks=ranks, env=env)
    # If the first job finished before it saw the STOP file, the second job found the file and stopped.
    if "STOP" in end and again.status == INTERRUPTED:
        again = train(config, run_dir, ranks=ranks, env=env)
    assert again.status == DONE, f"{what}\n{again}"
    assert losses_by_step(run_dir) == losses_by_step(whole), what
    assert weight_bytes(run_dir) == weight_bytes(whole), what
    assert names_in(run_dir) == names_in(whole), what
    assert [path for path in scratch if os.path.exists(path)] == [], what


@pytest.mark.parametrize("number", range(ENDINGS))
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.all_tier(
    "each way to end is tried on one number of ranks already, here or in stop_test",
    unless=lambda end, ranks: ranks == IN_COMMITS.get(end),
)
def test_an_ending(end, ranks, number, tmp_path, undisturbed):
    if end in OF_MPIRUN and ranks == 1:
        pytest.skip("a process that is alone has no mpirun")
    skip_without_gpus(ranks)
    expect_ending(end, ranks, f"{end} {ranks} {number}", tmp_path, undisturbed)


@pytest.mark.parametrize("number", range(MOMENTS_UNDER_5))
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.skipif(DEVICE == "CUDA", reason="Open MPI starts and ends ranks with GPUs in the same way")
@pytest.mark.all_tier("it installs Open MPI 5, and ends jobs as under Open MPI 4")
def test_an_ending_under_open_mpi_5(end, number, tmp_path, open_mpi_5, undisturbed_under_5):
    ranks = (2, 3)[number % 2] if end in OF_MPIRUN else (2, 3, 1)[number % 3]
    expect_ending(end, ranks, f"5 {end} {number}", tmp_path, undisturbed_under_5, env=open_mpi_5)
