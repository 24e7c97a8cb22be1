"""Tests the job script of `lockstep slurm` in a real Slurm of two nodes (slurm_cluster.py), with one rank on each node.
Whatever ends the job, it resumes by itself or with the next sbatch, and in the end each loss is that of an undisturbed
job."""

import os
import random
import re
import signal

import pytest

from harness import (
    CHECKPOINT,
    DATA,
    DEVICE,
    DONE,
    INTERRUPTED,
    LOCKSTEP,
    LONG_S,
    PEER,
    STOPPED,
    USAGE,
    Run,
    digits_config,
    events,
    expect_error,
    log_text,
    losses_by_step,
    processes_of,
    train,
    wait_until,
    wait_until_gone,
    write_config,
)
from slurm_cluster import NODES, Cluster, why_not

LOST_S = 120  # seconds for Slurm to notice that a node is gone, and to start a job again
STEPS = 2000  # these steps take seconds, so that a signal finds the job training
ENDINGS = int(os.environ.get("ENDINGS", "1"))  # number of repetitions of the tests that end jobs at random moments
SEED = int(os.environ.get("SEED", "0"))

pytestmark = pytest.mark.skipif(DEVICE == "CUDA", reason="the two nodes are one machine, whose GPUs they would share")


@pytest.fixture(scope="module")
def cluster():
    if why_not():
        pytest.skip(why_not())
    with Cluster() as cluster:
        yield cluster


def config_in(folder, name="config"):
    more = f'run_dir: "{folder}/{name}" max_steps: {STEPS} checkpoint {{ every_steps: 10 }}'
    return write_config(folder, digits_config(more), f"{name}.pbtxt")


class Job:
    """Submits a training job on two nodes. `script` is the file of the job's script, and `run_dir` the run folder."""

    def __init__(self, cluster, folder, *words, time="10:00", warning=60):
        self.cluster, self.folder, self.run_dir = cluster, folder, folder / "config"
        config = config_in(folder)
        options = ["--nodes", 2, "--gpus", 0, "--time", time, "--warning", warning, *words]
        made = Run(["slurm", *options, config])
        assert made.status == DONE, made
        self.script = folder / "job.sh"
        self.script.write_text(made.out)
        self.submit()

    def submit(self):
        self.id = self.cluster.submit(self.script, self.folder)

    def is_at(self, step):
        return f',"step":{step},"epoch":' in log_text(self.run_dir)

    def wait_for_step(self, step):
        wait_until(lambda: self.is_at(step))

    def wait_for_random_step(self, number):
        self.wait_for_step(random.Random(f"{SEED} {number}").randrange(5, STEPS * 3 // 4))

    def expect_done(self, whole, starts, limit_s=LONG_S):
        self.cluster.wait_for(self.id, "COMPLETED", limit_s)
        assert losses_by_step(self.run_dir) == whole
        assert len(events(self.run_dir, "start")) == starts
        self.expect_nothing_left()

    def expect_nothing_left(self):
        wait_until_gone(self.run_dir)

    def said(self):
        return "".join(path.read_text() for path in self.folder.glob("slurm-*.out"))


@pytest.fixture(scope="module")
def whole(cluster, tmp_path_factory):
    """Returns the losses of an undisturbed job. The losses equal those of a run without Slurm up to rounding: each node
    considers all cores of the machine its own, so the job has more threads, which sum in another order."""
    job = Job(cluster, tmp_path_factory.mktemp("whole"))
    folder = tmp_path_factory.mktemp("outside")
    run = train(config_in(folder), folder / "run", ranks=2)
    assert run.status == DONE, run
    cluster.wait_for(job.id, "COMPLETED", LONG_S)
    losses = losses_by_step(job.run_dir)
    outside = losses_by_step(folder / "run")
    assert losses.keys() == outside.keys()
    for step, of_step in losses.items():
        assert of_step == pytest.approx(outside[step], rel=1e-3), step
    return losses


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
@pytest.mark.all_tier("srun starts the same ranks as mpirun", unless=lambda launcher: launcher == "mpirun")
def test_a_job_whose_time_is_nearly_over(cluster, tmp_path, whole, launcher):
    """Sends the job script the signal with which Slurm warns it of the end of its time (--signal=B:USR2). The job is
    put into the queue again, and resumes."""
    job = Job(cluster, tmp_path, "--launcher", launcher)
    job.wait_for_step(20)
    cluster.run("scancel", "--batch", "--signal=USR2", job.id)
    job.expect_done(whole, starts=2)
    assert cluster.of(job.id, "Restarts") == "1"
    (stopped,) = events(job.run_dir, "stopped")
    assert [e["step"] for e in events(job.run_dir, "resume")] == [stopped["step"]]


@pytest.mark.parametrize("number", range(ENDINGS))
def test_scancel(cluster, tmp_path, whole, number):
    """Checks that a cancelled job is not restarted, and that it resumes when it is submitted again."""
    job = Job(cluster, tmp_path)
    job.wait_for_random_step(number)
    cluster.run("scancel", job.id)
    cluster.wait_for(job.id, "CANCELLED")
    job.expect_nothing_left()
    job.submit()
    job.expect_done(whole, starts=2)


@pytest.mark.parametrize("number", range(ENDINGS))
@pytest.mark.all_tier("a job that is requeued goes on as one whose time is over, but Slurm makes it wait")
def test_scontrol_requeue(cluster, tmp_path, whole, number):
    """Requeues a job, as Slurm does when a job of higher priority takes the nodes."""
    job = Job(cluster, tmp_path)
    job.wait_for_random_step(number)
    cluster.run("scontrol", "requeue", job.id)
    job.expect_done(whole, starts=2)


@pytest.mark.parametrize("node", NODES if ENDINGS > 1 else NODES[:1])
@pytest.mark.parametrize("number", range(ENDINGS))
@pytest.mark.all_tier("a lost node ends the job as in network_test, but Slurm makes it wait")
def test_a_node_is_lost(cluster, tmp_path, whole, node, number):
    """Kills all processes of the first node, on which the job's script runs, or of the other node. When the node is
    back, the job resumes."""
    job = Job(cluster, tmp_path)
    job.wait_for_random_step(number)
    cluster.lose(node)
    cluster.wait_for(job.id, "PENDING", LOST_S)
    job.expect_nothing_left()
    cluster.start(node)
    job.expect_done(whole, starts=2, limit_s=LOST_S)


@pytest.mark.skipif(ENDINGS == 1, reason="takes two minutes, as Slurm looks at limits twice a minute: ENDINGS=2 runs it")
@pytest.mark.all_tier("a job whose time is over goes on after a warning that is sent at once")
def test_the_time_is_over(cluster, tmp_path):
    """Checks that a job is restarted after the warning that Slurm itself sends 30 seconds before the limit of one
    minute. The user then stops the restarted job."""
    job = Job(cluster, tmp_path, "--set", "max_steps=1000000000", time="1:00", warning=30)
    wait_until(lambda: (job.run_dir / "log.jsonl").exists() and len(events(job.run_dir, "resume")) == 1, 3 * LONG_S)
    assert Run(["stop", job.run_dir]).status == DONE
    cluster.wait_for(job.id, "FAILED")
    job.expect_nothing_left()
    assert cluster.of(job.id, "Restarts") == "1"
    first, last = events(job.run_dir, "stopped")
    (resume,) = events(job.run_dir, "resume")
    assert resume["step"] == first["step"]
    folder = tmp_path / "whole"
    folder.mkdir()
    whole = Job(cluster, folder, "--set", f"max_steps={last['step']}")
    cluster.wait_for(whole.id, "COMPLETED", 3 * LONG_S)
    assert losses_by_step(job.run_dir) == losses_by_step(whole.run_dir)


@pytest.mark.all_tier("a killed rank is started again as in restart_test, but Slurm makes it wait")
def test_a_rank_is_killed(cluster, tmp_path, whole):
    """Checks that the job's script restarts the run after a rank was killed, without a new place in the queue."""
    job = Job(cluster, tmp_path)
    job.wait_for_step(20)
    ranks = [pid for pid, command in processes_of(job.run_dir.parent).items() if command.startswith(LOCKSTEP + " train")]
    os.kill(sorted(ranks)[-1], signal.SIGKILL)
    job.expect_done(whole, starts=2)
    assert "restart 1 of 3 follows" in job.said(), job.said()


# In place of the program: the first rank of the job ends with the status that the config's name has, and the other rank
# a second after srun has told of that. Which rank is the first depends on whether the status is even.
UNLIKE_ENDINGS = """#!/bin/bash
((SLURM_RESTART_COUNT > 0)) && exit 0
name=$(basename "$2" .pbtxt) first=$((${name#s} % 2))
if ((SLURM_PROCID != first)); then
  until grep -q "task $first: Exited" "FOLDER/slurm-$SLURM_JOB_ID.out"; do sleep 0.1; done
  sleep 1
fi
exit "${name#s}"
"""


def test_statuses_come_through_srun(cluster, tmp_path):
    """Checks that the job's status is that of its ranks, although these do not end at the same time: with 75 the job is
    started again, and with others it fails with them."""
    program = tmp_path / "program"
    program.write_text(UNLIKE_ENDINGS.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    jobs = {}
    for status in (STOPPED, USAGE, DATA, CHECKPOINT):
        config = config_in(tmp_path, f"s{status}")
        made = Run(["slurm", "--nodes", 2, "--gpus", 0, "--time", "10:00", "--launcher", "srun", config])
        assert made.status == DONE, made
        script = tmp_path / f"s{status}.sh"
        script.write_text(re.sub(r"^program=.*$", f"program={program}", made.out, flags=re.MULTILINE))
        jobs[status] = cluster.submit(script, tmp_path)
    for status in (USAGE, DATA, CHECKPOINT):
        cluster.wait_for(jobs[status], "FAILED")
        assert cluster.of(jobs[status], "ExitCode") == f"{status}:0"
        assert cluster.of(jobs[status], "Restarts") == "0"
    cluster.wait_for(jobs[STOPPED], "COMPLETED")
    assert cluster.of(jobs[STOPPED], "Restarts") == "1"


@pytest.mark.all_tier("the watchdog ends the ranks of mpirun in fault_test, in the same way")
@pytest.mark.parametrize("which", [0, -1])
def test_a_killed_rank_of_srun_ends_the_others(cluster, tmp_path, which):
    """Checks that srun leaves it to the watchdog to end the other rank, and that the job fails with a line that says
    why."""
    job = Job(cluster, tmp_path, "--launcher", "srun")
    job.wait_for_step(20)
    ranks = [pid for pid, command in processes_of(job.run_dir.parent).items() if command.startswith(LOCKSTEP + " train")]
    os.kill(sorted(ranks)[which], signal.SIGKILL)
    cluster.wait_for(job.id, "FAILED")
    assert cluster.of(job.id, "ExitCode") == f"{128 + signal.SIGKILL}:0"
    assert re.search(r"rank \d died: ", job.said()) and f"Exited with exit code {PEER}" in job.said(), job.said()
    job.expect_nothing_left()


@pytest.mark.all_tier("a job stops for good as in stop_test, but Slurm makes it wait")
def test_its_user_stops_it(cluster, tmp_path, whole):
    """Checks that the user's stop is final, although Slurm would start the job again."""
    job = Job(cluster, tmp_path)
    job.wait_for_step(20)
    assert Run(["stop", job.run_dir]).status == DONE
    cluster.wait_for(job.id, "FAILED")
    assert cluster.of(job.id, "ExitCode") == f"{INTERRUPTED}:0"
    assert cluster.of(job.id, "Restarts") == "0"
    job.expect_nothing_left()


@pytest.mark.all_tier("an array of jobs runs the script that one job runs, but Slurm makes it wait")
def test_an_array_of_configs(cluster, tmp_path):
    configs = [config_in(tmp_path, name) for name in ("a", "b")]
    made = Run(["slurm", "--gpus", 0, "--time", "10:00", *configs, "--set", "max_steps=20"])
    assert made.status == DONE, made
    assert "#SBATCH --array=0-1" in made.out
    (tmp_path / "job.sh").write_text(made.out)
    job = cluster.submit(tmp_path / "job.sh", tmp_path)
    for number, name in enumerate("ab"):
        cluster.wait_for(f"{job}_{number}", "COMPLETED")
        assert len(events(tmp_path / name, "step")) == 20


def test_srun_without_pmix(cluster, tmp_path):
    """Checks the error for srun without PMIx. If this were no error, each task would run as a job of one rank."""
    config = config_in(tmp_path)
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1\nsrun --mpi=none {LOCKSTEP} train {config}\n")
    job = cluster.submit(script, tmp_path)
    cluster.wait_for(job, "FAILED")
    said = (tmp_path / f"slurm-{job}.out").read_text()
    assert "lockstep: error: srun started 2 tasks that cannot find each other: use srun --mpi=pmix" in said, said
    assert not (tmp_path / "config").exists()


# The following tests need no Slurm.


def test_the_script_says_what_it_was_asked_for(tmp_path):
    config = config_in(tmp_path)
    words = ["--nodes", 2, "--gpus", 8, "--time", "4:00:00", "--sbatch=--partition=big one", "--set", "seed=3"]
    run = Run(["slurm", *words, config])
    assert run.status == DONE, run
    for line in (
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=8",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --time=4:00:00",
        "#SBATCH --signal=B:USR2@300",
        "#SBATCH --requeue",
        "#SBATCH --partition=big one",
    ):
        assert f"{line}\n" in run.out, run
    assert re.search(r'^start=\("\$program" -n 16 --restarts 3 train "\$config" --set seed=3\)$', run.out, re.M), run


def test_what_no_script_can_be_made_of(tmp_path):
    config = config_in(tmp_path)
    expect_error(Run(["slurm", "--time", "1:00", tmp_path / "none.pbtxt"]), USAGE, "none.pbtxt")
    expect_error(Run(["slurm", config]), USAGE, "--time is required")
    twice = Run(["slurm", "--time", "1:00", config, config])
    expect_error(twice, USAGE, "train in the same folder", "give each a run_dir of its own")
