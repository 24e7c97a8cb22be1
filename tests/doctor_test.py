"""Tests that `lockstep doctor` finds faults of the machine. A test plants its fault in the machine that the program
sees."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest

from harness import (
    DEVICE,
    DONE,
    PEER,
    USAGE,
    Run,
    in_mount_namespace,
    mpirun,
    needs_gpus,
    path_of,
    skip_without_gpus,
)
from open_mpi_5 import OPEN_MPI_5, open_mpi_5, own_series  # noqa: F401: open_mpi_5 is a fixture

FAULTS = path_of("MACHINE_FAULTS_SO")
WORDS = ["doctor", "--device", DEVICE.lower()]


class Findings:
    """Runs `lockstep doctor` and holds its findings: `by_check` maps the name of a check to one finding of each rank
    that ran the check."""

    def __init__(self, folder, **options):
        """Runs the command; `options` are passed to `Run`."""
        self.run = Run([*WORDS, "--folder", folder, "--json"], **options)
        self.by_check = {}
        for line in self.run.out.splitlines():
            finding = json.loads(line)
            self.by_check.setdefault(finding["check"], []).append(finding)

    def states(self, check):
        return [finding["state"] for finding in self.by_check[check]]

    def expect(self, check, state, *parts, rank=0):
        """Checks that the rank's finding has `state` and contains `parts`, and that a finding that is not ok gives
        advice or an error message."""
        (finding,) = [f for f in self.by_check[check] if f["rank"] == rank]
        assert finding["state"] == state, self.run
        assert self.run.status == (USAGE if state == "fail" else DONE), self.run
        for part in parts:
            assert part in finding["figure"], self.run
        assert state == "ok" or finding.get("advice") or "error" in finding["figure"] or ":" in finding["figure"]


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("a test on one rank is a part of the test on two", unless=lambda ranks: ranks == 2)
def test_a_machine_that_is_well(tmp_path, ranks):
    skip_without_gpus(ranks)
    found = Findings(tmp_path, ranks=ranks)
    assert found.run.status == DONE, found.run
    expected = {"libraries", "runtime", "mpi", "cores", "memory", "open files", "/dev/shm", "disk", "clock"}
    expected |= {"driver", "gpu", "gpu memory", "pcie"} if DEVICE == "CUDA" else set()
    expected |= {"all-reduce"} if ranks else set()
    assert expected <= set(found.by_check), found.run
    for check in ("libraries", "runtime", "mpi", "/dev/shm", "clock"):
        assert set(found.states(check)) == {"ok"}, found.run
    assert f"glibc {platform.libc_ver()[1]}, libstdc++.so.6.0." in found.by_check["runtime"][0]["figure"], found.run
    assert len(found.by_check["cores"]) == (ranks or 1)
    assert os.listdir(tmp_path) == []


def test_the_table_that_a_person_reads(tmp_path):
    run = Run([*WORDS, "--folder", tmp_path], ranks=None)
    assert run.status == DONE, run
    *lines, last = run.out.splitlines()
    assert all(line.startswith(("ok  ", "warn  ")) for line in lines), run
    assert last == f"{sum(l.startswith('ok') for l in lines)} ok, {sum(l.startswith('warn') for l in lines)} warn, 0 fail"


def test_little_shared_memory(tmp_path):
    launcher = in_mount_namespace(tmp_path, "mount -t tmpfs -o size=4m tmpfs /dev/shm")
    Findings(tmp_path, launcher=launcher).expect("/dev/shm", "fail", "4 MiB free of 10")


def test_ranks_on_one_core(tmp_path):
    if os.cpu_count() < 2:
        pytest.skip("this machine has one core only")
    found = Findings(tmp_path, launcher=mpirun(1, "--bind-to", "core"))
    found.expect("cores", "warn", f"bound to one core of {os.cpu_count()}")


def test_a_folder_that_cannot_be_written(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    launcher = in_mount_namespace(tmp_path, f"mount -t tmpfs -o ro tmpfs {folder}")
    Findings(folder, launcher=launcher).expect("disk", "fail", "Read-only file system")


def test_a_folder_that_is_not_there(tmp_path):
    Findings(tmp_path / "nowhere").expect("disk", "fail", "No such file or directory")


def test_a_full_disk(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    launcher = in_mount_namespace(tmp_path, f"mount -t tmpfs -o size=8m tmpfs {folder}")
    Findings(folder, launcher=launcher).expect("disk", "fail", "No space left", "free some space")


def test_a_slow_disk(tmp_path):
    found = Findings(tmp_path, env={"LD_PRELOAD": FAULTS, "SYNC_MS": "150"})
    found.expect("disk", "warn", "a small write is safe after ")
    (finding,) = found.by_check["disk"]
    # The time consists of the planted delay of 150 ms and the disk's own time.
    assert 150 <= float(re.search(r"safe after ([\d.]+) ms", finding["figure"])[1]) < 10_000


def test_ranks_whose_clocks_differ(tmp_path):
    skip_without_gpus(2)
    faults = {"LD_PRELOAD": FAULTS, "CLOCK_S": "-40", "CLOCK_RANK": "1"}
    found = Findings(tmp_path, ranks=2, env=faults)
    found.expect("clock", "warn", "s behind rank 0's", rank=1)
    assert found.states("clock") == ["ok", "warn"]


def test_a_clock_that_was_never_set(tmp_path):
    found = Findings(tmp_path, env={"LD_PRELOAD": FAULTS, "CLOCK_S": str(-(10**9))})
    found.expect("clock", "warn", "before the day this program was built")


def test_two_nccls(tmp_path):
    """Preloads a second NCCL. On a user's machine, LD_LIBRARY_PATH or a cluster's environment module may add a second
    one."""
    import torch

    site = pathlib.Path(torch.__file__).parent.parent
    second = tmp_path / "libnccl.so.2"
    shutil.copy(site / "nvidia/nccl/lib/libnccl.so.2", second)
    # The copy gets another soname, libnccl.so.9, so that the dynamic loader does not take it for the NCCL that is
    # already loaded.
    renamed = tmp_path / "libnccl.so.2.0"
    data = second.read_bytes()
    at = data.index(b"\0libnccl.so.2\0")
    renamed.write_bytes(data[: at + 1] + b"libnccl.so.9" + data[at + 13 :])
    runs = tmp_path / "runs"
    runs.mkdir()
    Findings(runs, env={"LD_PRELOAD": str(renamed)}).expect("libraries", "fail", "libnccl.so is loaded 2 times")


def test_few_open_files(tmp_path):
    found = Findings(tmp_path, launcher=["sh", "-c", 'ulimit -Sn 256; exec "$@"', "doctor"])
    found.expect("open files", "warn", "256 may be open")


def test_no_mpirun(tmp_path):
    Findings(tmp_path, env={"PATH": str(tmp_path)}).expect("mpi", "warn", "no mpirun")


def test_another_mpirun(tmp_path):
    other = tmp_path / "mpirun"
    other.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 1.10.2'\n")
    other.chmod(0o755)
    found = Findings(tmp_path, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    found.expect("mpi", "fail", "but mpirun is Open MPI 1.10.2")


@pytest.mark.all_tier("PyPI has the other series of Open MPI")
def test_open_mpi_5(open_mpi_5, tmp_path):
    found = Findings(tmp_path, ranks=2, env=open_mpi_5, launcher=["env", "-u", "HOME"])
    found.expect("mpi", "ok", f"Open MPI {OPEN_MPI_5} (PMIx 5.", ", PRRTE 3.", "), 2 ranks on 1 machine")


@pytest.mark.all_tier("PyPI has the other series of Open MPI")
def test_an_mpirun_of_another_series(open_mpi_5, tmp_path):
    """Checks that doctor warns of an mpirun of Open MPI 5 beside a libmpi of Open MPI 4. PyPI's mpirun gives its ranks its
    own libmpi, so they meet."""
    if own_series() != "4":
        pytest.skip("needs a machine with Open MPI 4")
    env = {"PATH": open_mpi_5["PATH"]}
    found = Findings(tmp_path, env=env)
    found.expect("mpi", "warn", "Open MPI 4", f"but mpirun is Open MPI {OPEN_MPI_5}")
    Findings(tmp_path, ranks=2, env=env).expect("mpi", "ok", f"Open MPI {OPEN_MPI_5}", "2 ranks on 1 machine")


@pytest.mark.all_tier("PyPI has the other series of Open MPI")
def test_ranks_of_another_series(open_mpi_5, tmp_path):
    """Starts ranks with an mpirun of Open MPI 5 that lies where it was installed, and so leaves them the machine's libmpi
    of Open MPI 4. Each rank is alone then, and refuses to train."""
    if own_series() != "4":
        pytest.skip("needs a machine with Open MPI 4")
    (folder, *_) = open_mpi_5["PATH"].split("/bin:")
    prepare = f"""mount -t tmpfs none /opt
        mkdir /opt/openmpi /opt/bin
        mount --bind {folder} /opt/openmpi
        ln -s /opt/openmpi/bin/ompirun_wrapper /opt/bin/mpirun"""
    launcher = in_mount_namespace(tmp_path, prepare)
    env = {"PATH": f"/opt/bin:{os.environ['PATH']}"}
    run = Run(["doctor", "--device", "cpu"], ranks=2, launcher=launcher, env=env)
    assert run.status == PEER, run
    assert "lockstep: error: the launcher has started 2 ranks, and MPI has found 1" in run.err, run


def test_no_gpu_where_one_is_wanted(tmp_path):
    words = ["doctor", "--device", "cuda", "--folder", tmp_path]
    run = Run(words, env={"CUDA_VISIBLE_DEVICES": ""})
    assert run.status == USAGE, run
    assert "fail  ranks         1 rank but 0 visible GPUs on this machine" in run.out, run


# The following tests plant faults of GPUs.


def test_a_driver_that_is_too_old(tmp_path):
    needs_gpus(1)
    found = Findings(tmp_path, env={"LD_PRELOAD": FAULTS, "NO_DRIVER": "35"})
    found.expect("ranks", "fail", "the NVIDIA driver ", "is too old for CUDA")


def test_a_gpu_that_others_use(tmp_path):
    needs_gpus(1)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import torch; x = torch.empty(16 << 30, dtype=torch.uint8, device='cuda'); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"1\n"
        Findings(tmp_path).expect("gpu", "warn", "GiB in use")
    finally:
        holder.kill()
        holder.wait()


def test_one_gpu_for_two_ranks(tmp_path):
    needs_gpus(1)
    run = Run([*WORDS, "--folder", tmp_path], ranks=2, env={"CUDA_VISIBLE_DEVICES": "0"})
    assert run.status == USAGE, run
    assert "fail  ranks         2 ranks but 1 visible GPU" in run.out, run


def test_an_exchange_that_goes_the_long_way(tmp_path):
    """Sets the variables with which a user keeps NCCL from using NVLink and shared memory."""
    needs_gpus(2)
    found = Findings(tmp_path, ranks=2, env={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"})
    found.expect("all-reduce", "warn", "where links carry")
