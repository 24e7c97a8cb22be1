"""Simulates a machine with nothing but Python and the torch wheel, for tests of the bundle. The machine is a new root
folder in a mount namespace, with glibc, libstdc++, /usr/bin/python3, a shell and little else. Programs that run with
this root folder see neither the real machine's Open MPI nor the build folder."""

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig

# The site-packages folder that holds the wheels with which the lockstep program was linked.
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])

PYTHON = "/usr/bin/python3"

# The command that runs another command in a new mount namespace. A user other than root needs a new user namespace as
# well, which some systems do not allow.
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def why_there_is_none():
    """Returns the reason why this machine cannot make a BareMachine, or None if it can make one."""
    done = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if done.returncode:
        return "needs root, or user namespaces, to mount: " + done.stderr.strip()
    return None if os.path.exists(PYTHON) else f"needs {PYTHON}"


class BareMachine:
    """Simulates a machine whose root folder is the new folder `root`. A test reaches the machine's /work as
    `root`/work. If `torch` is true, the machine's Python has the wheels of `SITE`."""

    def __init__(self, root, torch=True):
        self.root = pathlib.Path(root)
        self.mounts = []
        version = subprocess.run(
            [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for folder in ("usr/bin", "bin", "etc", "tmp", "work", "root"):
            (self.root / folder).mkdir(parents=True)
        for program in ("/bin/sh", "/bin/bash", "/usr/bin/env", "/bin/cat", "/usr/bin/head"):
            self.copy(program)
            self.copy_libraries_of(program)
        self.copy(PYTHON)
        self.copy_libraries_of(PYTHON)
        # This also copies the C++ compiler's runtime libraries, on which libc10.so depends.
        self.copy_libraries_of(SITE / "torch/lib/libc10.so")
        (libc,) = [path for path in self.root.rglob("libc.so.6")]
        for name in ("rt.so.1", "dl.so.2", "pthread.so.0", "util.so.1", "resolv.so.2", "nss_files.so.2"):
            path = f"/{libc.parent.relative_to(self.root)}/lib{name}"
            if os.path.exists(path):
                self.copy(path)
        if os.environ.get("DEVICE") == "CUDA":
            self.copy_driver()
        self.standard_library = f"/usr/lib/python{version}"
        self.packages = f"/usr/local/lib/python{version}/dist-packages"
        for folder in ("/proc", "/sys", "/dev", self.standard_library):
            self.mount(folder, folder)
        if torch:
            self.mount(SITE, self.packages)

    def copy(self, path):
        target = self.root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy2(os.path.realpath(path), target)

    def copy_libraries_of(self, *binaries):
        for path in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", *binaries], capture_output=True, text=True).stdout):
            if not path.startswith(str(SITE)):
                self.copy(path)

    def copy_libraries_of_python(self):
        """Copies the libraries that the C modules of Python's standard library need, without which neither pip nor
        torch can be imported."""
        self.copy_libraries_of(*pathlib.Path(self.standard_library, "lib-dynload").glob("*.so"))

    def copy_driver(self):
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
        for path in re.findall(r"=> (/\S*/lib(?:cuda|nvidia-\S*)\.so\S*)", known):
            self.copy(path)

    def mount(self, source, target, read_only=False):
        place = self.root / target.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        self.mounts.append(f"mount --rbind '{source}' '{place}'")
        if read_only:
            self.mounts.append(f"mount -o remount,bind,ro '{place}'")

    def launcher(self, environment=()):
        """Returns the words to put before a command so that the command runs on this machine, in /work, with
        `environment` as its only environment variables."""
        mounts = " && ".join(self.mounts)
        variables = [f"{name}={value}" for name, value in dict(environment).items()]
        inside = ["chroot", str(self.root), "/usr/bin/env", "-i", "--chdir=/work", *variables]
        return [*NAMESPACE, "/bin/sh", "-c", mounts + ' && exec "$@"', "sh", *inside]
