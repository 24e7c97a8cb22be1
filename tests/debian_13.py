"""Does in a root folder with Debian 13 what README.md and CONTRIBUTING.md say: sets Lockstep up from a clone of the last
commit, builds and trains; then runs tests there. Debian 13 has GCC 14, Clang 19, Python 3.13 and Open MPI 5.

  tests/debian_13.py [ARGUMENT ...]    the arguments of `./lockstep test`; without any, the tests of every commit

The folder .lockstep/debian-13 keeps the system and what was built, so the next time is shorter. The last line is that of
`./lockstep test`: `N passed, N failed, N skipped`."""

import os
import pathlib
import subprocess
import sys

from debian_root import DebianRoot, why_none

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / ".lockstep/debian-13"
CLONE = "/lockstep"
# The smallest system lacks these packages: pip needs the first, and a clone the second.
PACKAGES = ("ca-certificates", "git")


def root_with_clone():
    """Returns a root with Debian 13, in which CLONE is a clone of the last commit."""
    root = DebianRoot(FOLDER)
    made = FOLDER / "made"
    if not made.exists():
        if why := why_none() or root.bootstrap("trixie", PACKAGES):
            sys.exit(f"tests/debian_13.py: {why}")
        made.touch()
    root.copy_network_settings()
    root.variables.update(root.network)
    root.cwd = CLONE
    clone = FOLDER / CLONE[1:]
    if not (clone / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", "--no-local", REPOSITORY, clone], check=True)
    subprocess.run(["git", "-C", clone, "fetch", "--quiet", REPOSITORY, "HEAD"], check=True)
    subprocess.run(["git", "-C", clone, "reset", "--quiet", "--hard", "FETCH_HEAD"], check=True)
    return root


def main(arguments):
    launcher = root_with_clone().launcher()
    train = ["./lockstep", "-n", "2", "train", "examples/digits/train.pbtxt", "--fresh"]
    status = subprocess.run([*launcher, *train]).returncode
    if status == 0:
        status = subprocess.run([*launcher, "./lockstep", "test", *arguments]).returncode
    # Bazel's server would keep the root's mounts.
    subprocess.run([*launcher, "bazel", "shutdown"], stdout=subprocess.DEVNULL)
    return status


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    sys.exit(main(sys.argv[1:]))
