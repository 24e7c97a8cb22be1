"""Tests ways to start ranks, right and wrong ones: other launchers, binding to cores and GPUs, little shared memory."""

import os
import pathlib
import re
import subprocess

import pytest

from harness import (
    DONE,
    LOCKSTEP,
    PEER,
    STOPPED,
    USAGE,
    Run,
    Started,
    digits_data,
    events,
    expect_error,
    in_mount_namespace,
    mpirun,
    needs_gpus,
    sets,
    skip_without_gpus,
    write_config,
)

def config_in(folder):
    return write_config(
        folder,
        f"""run_dir: "{folder}/run" max_steps: 5 model {{ name: "mlp" }}
        {digits_data()}""",
    )


def started_by_mpirun(folder, ranks, *words, script=None):
    """Trains under mpirun. `script` is a shell script that mpirun runs for each rank, and that starts the program as
    "$@"."""
    shell = ["sh", "-c", script, "rank"] if script else []
    return Run(["train", config_in(folder)], launcher=[*mpirun(ranks, *words), *shell])


@pytest.mark.parametrize("variables", [{"PMI_RANK": "0", "PMI_SIZE": "4"}, {"MV2_COMM_WORLD_SIZE": "4"}])
def test_mpich(tmp_path, variables):
    """Sets the variables that the mpiexec of MPICH or MVAPICH2 sets, as if such an mpiexec had started the program.
    With Open MPI's library, each rank that such an mpiexec starts would run as a job of its own."""
    run = Run(["train", config_in(tmp_path)], env=variables)
    expect_error(run, USAGE, "one of 4 ranks by an mpiexec that is not Open MPI's", "lockstep -n 4")


def test_a_rank_whose_launcher_has_ended(tmp_path):
    """Sets the variable that mpirun sets for two ranks, and starts one rank without an mpirun, as a rank is left if
    mpirun is killed before MPI_Init(). MPI makes it the only rank of a world of its own, in which it must not train."""
    run = Run(["train", config_in(tmp_path)], env={"OMPI_COMM_WORLD_SIZE": "2"})
    expect_error(run, PEER, "the launcher has started 2 ranks, and MPI has found 1")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words,expected", [((), "1000"), (("GOMP_SPINCOUNT=7",), "7"), (("OMP_WAIT_POLICY=active",), None)])
def test_threads_sleep_where_they_wait_long(tmp_path, words, expected):
    """Checks that the program sets GOMP_SPINCOUNT, so that waiting OpenMP threads soon sleep, unless the user has set a
    waiting policy. Bazel sets one for Lockstep's own tests, and this test removes it."""
    launcher = ["env", "-u", "OMP_WAIT_POLICY", *words]
    more = sets("max_steps=1000000000", "epochs=1000000")
    with Started(config_in(tmp_path), tmp_path / "run", words=more, launcher=launcher) as job:
        job.wait_for("start")
        variables = pathlib.Path(f"/proc/{job.process.pid}/environ").read_text().split("\0")
        status, _, err = job.stop()
    assert status == STOPPED, err
    assert [v for v in variables if v.startswith("GOMP_SPINCOUNT=")] == ([f"GOMP_SPINCOUNT={expected}"] if expected else [])


def test_through_the_dynamic_loader():
    found = subprocess.run(["readelf", "-l", LOCKSTEP], capture_output=True, text=True, check=True).stdout
    loader = re.search(r"program interpreter: (.*)]", found)[1]
    version = Run(["version"])
    through = Run(["-u", "OMP_WAIT_POLICY", loader, LOCKSTEP, "version"], program="env")
    assert through.status == DONE and through.out == version.out, through


def test_ranks_that_are_bound_to_one_core(tmp_path):
    if os.cpu_count() < 2:
        pytest.skip("this machine has one core only")
    run = started_by_mpirun(tmp_path, 1, "--bind-to", "core")
    assert run.status == DONE, run
    assert f"warning: 1 of 1 ranks is bound to one core of {os.cpu_count()}" in run.err, run
    assert "mpirun --bind-to none" in run.err, run


def test_one_rank_through_mpirun(tmp_path):
    run = Run(["-n", "1", "train", config_in(tmp_path)])
    assert run.status == DONE and " mpirun -n 1 " in run.err, run


@pytest.mark.parametrize("ranks", [None, 2])
def test_without_home(tmp_path, ranks):
    """Starts the program as a service is started. The mpirun and MPI of Open MPI 5 need HOME."""
    run = Run(["train", config_in(tmp_path)], ranks=ranks, launcher=["env", "-u", "HOME"])
    assert run.status == DONE and "HOME" not in run.err, run


def test_ranks_that_are_not(tmp_path):
    skip_without_gpus(2)
    run = started_by_mpirun(tmp_path, 2)
    assert run.status == DONE and "bound" not in run.err, run


def test_cores_that_ranks_are_bound_to_are_their_own(tmp_path):
    """Checks that the cores that a rank is bound to are not divided by the number of ranks. The loader must have one
    thread fewer than the rank has cores."""
    cores = len(os.sched_getaffinity(0)) // 2 * 2
    if cores < 4:
        pytest.skip("needs four cores, for two ranks to have more than one each")
    skip_without_gpus(2)
    half = f"half=$(({cores // 2})); taskset -c $((OMPI_COMM_WORLD_RANK * half))-$(((OMPI_COMM_WORLD_RANK + 1) * half - 1))"
    run = started_by_mpirun(tmp_path, 2, script=half + ' "$@"')
    assert run.status == DONE, run
    assert events(tmp_path / "run", "start")[0]["loader_threads"] == cores // 2 - 1


def test_little_shared_memory(tmp_path):
    """Checks the error for 4 MiB of shared memory; containers have little by default. Without the check a signal would
    kill the ranks in MPI."""
    launcher = in_mount_namespace(tmp_path, "mount -t tmpfs -o size=4m tmpfs /dev/shm")
    run = Run(["train", config_in(tmp_path)], launcher=[*launcher, *mpirun(2)])
    assert run.status == USAGE, run
    assert "error: /dev/shm has 4 MiB left, and 2 ranks need 10: in a container start it with --shm-size=1g" in run.err


# In the following tests each rank sees the GPUs that its environment variables allow.


def test_a_gpu_of_its_own_for_each_rank(tmp_path):
    """Lets each rank see its own GPU as the only one, as Slurm's --gpus-per-task does."""
    needs_gpus(2)
    run = started_by_mpirun(tmp_path, 2, script='CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"')
    assert run.status == DONE, run


def test_two_ranks_with_one_gpu(tmp_path):
    needs_gpus(1)
    run = started_by_mpirun(tmp_path, 2, script='CUDA_VISIBLE_DEVICES=0 exec "$@"')
    assert run.status == USAGE and "2 ranks but 1 visible GPU on " in run.err, run


def test_the_same_gpu_twice(tmp_path):
    needs_gpus(2)
    order = '[ "$OMPI_COMM_WORLD_LOCAL_RANK" = 0 ] && devices=0,1 || devices=1,0'
    run = started_by_mpirun(tmp_path, 2, script=order + '; CUDA_VISIBLE_DEVICES=$devices exec "$@"')
    assert run.status == USAGE and "ranks 0 and 1 on " in run.err and "have the same GPU" in run.err, run
