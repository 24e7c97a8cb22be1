"""Makes root folders with a release of Debian, as container images are made from. The commands of a Dockerfile run in
them without Docker: chroot and namespaces stand for a container."""

import os
import pathlib
import shlex
import shutil
import subprocess

MIRROR = "http://deb.debian.org/debian"
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_none():
    """Returns the reason why this machine cannot make such roots, or "" if it can."""
    if os.geteuid() != 0:
        return "needs root, to make a root folder"
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin") is None:
            return f"needs {program} (apt-get install debootstrap util-linux)"
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return done.stderr.strip()


class DebianRoot:
    """The root folder `path`, with the environment variables `variables`."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.variables = {"PATH": STANDARD_PATH, "HOME": "/root"}
        self.cwd = "/"
        self.network = {}  # the environment variables that say how package indexes are reached

    def bootstrap(self, release="bookworm", packages=()):
        """Installs Debian's smallest system, and `packages`. Returns why it cannot be installed, or ""."""
        # debootstrap mounts /proc in the folder, and in a namespace of its own that ends with it.
        more = [f"--include={','.join(packages)}"] if packages else []
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase", *more, release, str(self.path), MIRROR]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            return f"debootstrap cannot install Debian from {MIRROR}: {(done.stdout + done.stderr)[-300:]}"
        # As in Debian's images, no package starts a service.
        policy = self.path / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        self.copy_network_settings()
        return ""

    def copy_network_settings(self):
        """Copies this machine's settings for reaching package indexes: name servers, certificates, and pip's and apt's
        options."""
        for name in ("etc/resolv.conf", "etc/pip.conf"):
            if os.path.exists(f"/{name}"):
                shutil.copyfile(f"/{name}", self.path / name)
        for file in pathlib.Path("/etc/apt/apt.conf.d").glob("*"):
            if "Acquire" in file.read_text(errors="replace"):
                shutil.copy(file, self.path / "etc/apt/apt.conf.d")
        # The package ca-certificates writes /etc/ssl/certs anew, so files of certificates get another place.
        for name, value in os.environ.items():
            if name.lower().endswith("_proxy") or name == "PIP_INDEX_URL":
                self.network[name] = value
            elif ("CERT" in name or "CA_BUNDLE" in name) and os.path.isfile(value):
                self.network[name] = f"/var/lib/certificates/{name}"
                (self.path / "var/lib/certificates").mkdir(exist_ok=True)
                shutil.copyfile(value, self.path / self.network[name].lstrip("/"))

    def launcher(self, mounts=()):
        """Returns the words to put before a command so that it runs in this root, with /proc, /sys, /dev and the further
        `mounts`, which are shell commands."""
        script = " && ".join(
            [
                "mount --make-rprivate /",
                *(f"mount --rbind /{name} {shlex.quote(str(self.path / name))}" for name in ("proc", "sys", "dev")),
                *mounts,
                'exec "$@"',
            ]
        )
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        inside = ["chroot", str(self.path), "/usr/bin/env", "-i", f"--chdir={self.cwd}", *variables]
        return ["unshare", "--mount", "/bin/sh", "-c", script, "sh", *inside]

    def run(self, *words, variables=(), **options):
        """Runs a command, which must succeed, and returns its output."""
        inside = ["/usr/bin/env", *(f"{name}={value}" for name, value in dict(variables).items())]
        command = [*self.launcher(), *inside, *(str(word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", **options)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def build(self, dockerfile, context):
        """Does the steps of a Dockerfile, whose COPY takes files of the folder `context`. Returns its CMD."""
        command = None
        for instruction, rest in instructions(dockerfile):
            if instruction == "FROM":
                assert rest == "debian:12-slim", "this root is Debian 12"
            elif instruction == "COPY":
                *sources, target = rest.split()
                assert target.endswith("/"), f"COPY {rest}: name a folder"
                folder = self.path / target.lstrip("/")
                folder.mkdir(parents=True, exist_ok=True)
                for source in sources:
                    found = list(pathlib.Path(context).glob(source))
                    assert found, f"COPY {source}: there is no such file in {context}"
                    for file in found:
                        shutil.copy(file, folder)
            elif instruction == "RUN":
                self.run("/bin/sh", "-c", rest, variables=self.network)
            elif instruction == "ENV":
                self.variables.update(word.split("=", 1) for word in shlex.split(rest))
            elif instruction == "WORKDIR":
                self.cwd = rest
                (self.path / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif instruction == "CMD":
                command = rest
            else:
                raise AssertionError(f"{instruction} {rest}: this instruction is unknown here")
        return command


def instructions(dockerfile):
    """Returns the instructions of a Dockerfile with their texts, in which lines are joined."""
    lines = [line for line in pathlib.Path(dockerfile).read_text().split("\n") if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.strip().split(None, 1)) for line in text.split("\n") if line.strip()]


def sections(definition):
    """Returns the header of an Apptainer definition file as a dict, and its sections as {name: lines}."""
    header, found = {}, {}
    into = None
    for line in pathlib.Path(definition).read_text().split("\n"):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("%"):
            into = found.setdefault(line[1:], [])
        elif into is None:
            name, _, value = line.partition(":")
            header[name] = value.strip()
        else:
            into.append(line)
    return header, found
