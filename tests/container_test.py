"""Tests the files of examples/containers. The steps of the Dockerfile are done in a root folder with Debian 12
(debian_root.py), because the tests have no Docker; then ranks train in it. The pods of `lockstep kubernetes` are simulated
with this root: each has an overlay of it, namespaces, an address, and its own ssh server."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import pytest

from debian_root import DebianRoot, instructions, sections, why_none
from harness import (
    DIGITS,
    DONE,
    LONG_S,
    STOPPED,
    Run,
    digits_config,
    digits_data,
    events,
    log_text,
    losses_by_step,
    wait_until,
    write_config,
)
from kubernetes_test import OPERATORS_VARIABLES, container_of, expanded, manifest, pod_of, replicas
from network_hosts import Network
from network_hosts import why_not as why_no_network

CONTAINERS = pathlib.Path("examples/containers").absolute()
NOTEBOOKS = pathlib.Path("docs/notebooks.md").absolute()
STEPS = 1500
START_S = 180  # seconds for ssh servers, daemons and ranks to start on busy cores


def config_in(folder, digits):
    return write_config(folder, digits_config(f"max_steps: {STEPS}", digits_data(train=digits)), "digits.pbtxt")


def test_both_files_do_the_same():
    """Checks that Apptainer's file copies the files and does the steps of the Dockerfile, which a test runs."""
    header, found = sections(CONTAINERS / "lockstep.def")
    steps = dict(instructions(CONTAINERS / "Dockerfile"))
    assert header == {"Bootstrap": "docker", "From": steps["FROM"]}
    assert " && ".join(found["post"]) == steps["RUN"]
    *sources, target = steps["COPY"].split()
    copied = [line.split() for line in found["files"]]
    assert [source for source, _ in copied] == sources and all(to.startswith(target) for _, to in copied)


def test_the_libraries_are_those_of_notebooks():
    """Checks that the image has the wheels with which a test of notebooks trains."""
    named = [re.findall(r"[\w-]+==[\d.]+", text.read_text()) for text in (CONTAINERS / "install.sh", NOTEBOOKS)]
    assert len(named[0]) == 15 and set(named[0]) <= set(named[1])


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if why_none():
        pytest.skip(why_none())
    folder = tmp_path_factory.mktemp("image")
    context = folder / "context"
    shutil.copytree(CONTAINERS, context)
    made = Run(["bundle", "--wheel", context])
    assert made.status == DONE, made
    root = DebianRoot(folder / "root")
    if why := root.bootstrap():
        pytest.skip(why)
    command = root.build(context / "Dockerfile", context)
    assert "Usage" in root.run(*json.loads(command))
    yield root
    shutil.rmtree(root.path)


waits = pytest.mark.all_tier("it installs Debian and torch's wheels into a folder, which takes minutes")


@waits
def test_two_ranks_train_in_the_image(image, tmp_path):
    """Trains as the Dockerfile's first lines say, on two ranks."""
    said = image.run("lockstep", "-n", 2, "train", "/opt/lockstep/examples/digits/train.pbtxt", cwd="/")
    assert float(said.split("accuracy ")[-1].split()[0]) > 0.95, said
    assert not list((image.path / "etc/ssh").glob("ssh_host_*"))
    assert "not found" not in image.run("ldd", "/opt/lockstep/bin/lockstep")
    assert not (image.path / "usr/bin/python3").exists()


class Pod:
    """A pod of the image: an overlay of its root, on the machine `machine` of a simulated network. `host_name` is the
    pod's name, and `hosts` the text of its /etc/hosts."""

    def __init__(self, image, folder, machine, replica, host_name, hosts, files, volume):
        self.folder = folder
        folder.mkdir()
        upper, work, root = folder / "upper", folder / "work", folder / "root"
        for path in (upper, work, root, upper / "etc/mpi", upper / "root/.ssh", upper / "data"):
            path.mkdir(parents=True)
        (upper / "etc/hosts").write_text(hosts)
        for path, text in files.items():
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            (upper / path).write_text(text)
        # Kubernetes mounts a secret in a folder to which anybody may write.
        (upper / "root/.ssh").chmod(0o1777)
        (upper / "root/.ssh/id_rsa").chmod(0o600)
        container = container_of(replica)
        pod = DebianRoot(root)
        pod.variables = {**image.variables, **OPERATORS_VARIABLES, "OMPI_MCA_mpi_yield_when_idle": "1"}
        pod.cwd = container["workingDir"]
        words = [expanded(word, pod.variables) for word in container["command"] + container.get("args", [])]
        variables = [f"{name}={value}" for name, value in pod.variables.items()]
        script = " && ".join(
            [
                "mount --make-rprivate /",
                f"hostname {host_name}",
                f"mount -t overlay overlay -o lowerdir={image.path},upperdir={upper},workdir={work} {root}",
                f"mount -t proc proc {root}/proc",
                f"mount --rbind /sys {root}/sys",
                f"mount --rbind /dev {root}/dev && mount -t tmpfs tmpfs {root}/dev/shm",
                f"mount --bind {shlex.quote(str(volume))} {root}/data",
                'exec "$@"',
            ]
        )
        inside = ["chroot", str(root), "/usr/bin/env", "-i", f"--chdir={pod.cwd}", *variables, *words]
        with open(folder / "out", "w") as out:
            self.process = subprocess.Popen(
                [*machine.enter, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *inside],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def take_away(self):
        """Sends SIGTERM to process 1, as Kubernetes does, and returns the pod's exit status."""
        (first,) = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        return self.process.wait(START_S)

    def said(self):
        return (self.folder / "out").read_text()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def cluster(image, tmp_path):
    """Returns a function that starts a pod on the machine `launcher`, `w0` or `w1`. Its attribute `volume` is the folder
    that all pods have as /data."""
    if why_no_network():
        pytest.skip(why_no_network())
    volume, keys = tmp_path / "volume", tmp_path / "keys"
    volume.mkdir()
    keys.mkdir()
    shutil.copy(DIGITS, volume / "digits.csv")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", keys / "id_rsa"], check=True)
    config_map, job = manifest(config_in(tmp_path, "/data/digits.csv"), "--gpus", 0, "--workers", 2, "--namespace", "team")
    launcher, worker = replicas(job)
    # The network's names of the machines, which are short, and the pods' names.
    names = {"launcher": "digits-launcher", "w0": "digits-worker-0", "w1": "digits-worker-1"}
    public = (keys / "id_rsa.pub").read_text()
    files = {
        "etc/mpi/hostfile": "".join(f"{names[worker]}.digits.team.svc slots=1\n" for worker in ("w0", "w1")),
        "root/.ssh/id_rsa": (keys / "id_rsa").read_text(),
        "root/.ssh/id_rsa.pub": public,
        "root/.ssh/authorized_keys": public,
    }
    (config_volume,) = [v for v in pod_of(launcher)["volumes"] if "configMap" in v]
    for item in config_volume["configMap"]["items"]:
        files["etc/lockstep/" + item["path"]] = config_map["data"][item["key"]]
    (tmp_path / "network").mkdir()
    pods = []
    with Network(tmp_path / "network", list(names)) as network:
        table = "127.0.0.1 localhost\n" + "".join(
            f"{address} {names[machine]}.digits.team.svc {names[machine]}\n" for machine, address in network.addresses.items()
        )

        def start(machine):
            replica = launcher if machine == "launcher" else worker
            folder = tmp_path / f"pod-{len(pods)}"
            pod = Pod(image, folder, network[machine], replica, names[machine], table, files, volume)
            pods.append(pod)
            return pod

        start.volume = volume
        try:
            yield start
        finally:
            for pod in pods:
                pod.end()


@waits
def test_pods_that_are_taken_away(image, cluster, tmp_path):
    """Trains on two workers. A worker is taken away and comes back, and then the launcher. Checks that the state was
    saved each time, and that the losses are those of an undisturbed run."""
    run_dir = cluster.volume / "runs/digits"
    workers = [cluster("w0"), cluster("w1")]
    launcher = cluster("launcher")

    def wait_for_step(step):
        wait_until(lambda: f',"step":{step},' in log_text(run_dir) or launcher.process.poll() is not None, START_S)
        assert launcher.process.poll() is None, launcher.said() + workers[1].said()

    wait_for_step(50)
    assert workers[1].take_away() == 0, workers[1].said()
    wait_until(lambda: "launcher: waits for digits-worker-1.digits.team.svc" in launcher.said(), START_S)
    (stopped,) = events(run_dir, "stopped")
    assert stopped["step"] < STEPS
    workers[1] = cluster("w1")
    wait_for_step(stopped["step"] + 50)
    assert launcher.take_away() == STOPPED, launcher.said()
    assert len(events(run_dir, "stopped")) == 2
    launcher = cluster("launcher")
    assert launcher.process.wait(START_S) == DONE, launcher.said()
    assert [event["step"] for event in events(run_dir, "resume")] == [event["step"] for event in events(run_dir, "stopped")]

    whole = tmp_path / "whole"
    whole.mkdir()
    run = Run(["train", config_in(whole, DIGITS), "--set", f"run_dir={whole}/run"], ranks=2, timeout=LONG_S * 2)
    assert run.status == DONE, run
    losses, undisturbed = losses_by_step(run_dir), losses_by_step(whole / "run")
    assert losses.keys() == undisturbed.keys()
    for step, of_step in losses.items():
        # Each pod takes all cores of the machine for its own, and more threads sum in another order.
        assert of_step == pytest.approx(undisturbed[step], rel=1e-3), step
