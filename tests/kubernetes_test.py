"""Tests the manifest of `lockstep kubernetes`: its texts, its fields by the published schemas, and its two scripts. The
launcher's script trains for real, with the words of the manifest, as process 1 of its own process namespace, on the one
machine that its host file names. container_test.py runs both scripts with a real ssh in the image.

If $MPI_OPERATOR_CRD names the file manifests/base/kubeflow.org_mpijobs.yaml of kubeflow/mpi-operator, the manifest is
also checked against that schema. (The file has 670 KB, and none of the package indexes that tests use has it.)"""

import ast
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest

from harness import (
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
    train,
    wait_until,
    write_config,
)

yaml = pytest.importorskip("yaml")

CRD = os.environ.get("MPI_OPERATOR_CRD")
KUBERNETES = "kubernetes==34.1.0"  # the client of Kubernetes 1.34, whose models are made of Kubernetes' own OpenAPI
STEPS = 300


def config_in(folder, name="digits.pbtxt", more=""):
    return write_config(folder, digits_config(f"max_steps: {STEPS} checkpoint {{ every_steps: 20 }} {more}"), name)


def manifest(config, *words, image="registry.example/lockstep:1", claim="disk:/data"):
    """Returns the ConfigMap and the MPIJob of the manifest."""
    run = Run(["kubernetes", config, "--image", image, "--claim", claim, *words])
    assert run.status == DONE and not run.err, run
    config_map, job = yaml.safe_load_all(run.out)
    assert (config_map["kind"], job["kind"]) == ("ConfigMap", "MPIJob")
    return config_map, job


def replicas(job):
    specs = job["spec"]["mpiReplicaSpecs"]
    assert set(specs) == {"Launcher", "Worker"}
    return specs["Launcher"], specs["Worker"]


def pod_of(replica):
    return replica["template"]["spec"]


def container_of(replica):
    (container,) = pod_of(replica)["containers"]
    return container


def expanded(word, variables):
    """Returns the text that Kubernetes makes of a word of a command: $$ stands for $, and $(NAME) for a variable of the
    container, if there is one of this name."""
    found = {f"$({name})": value for name, value in variables.items()}
    return re.sub(r"\$\$|\$\([^)]*\)", lambda m: "$" if m[0] == "$$" else found.get(m[0], m[0]), word)


def test_what_it_asks_for(tmp_path):
    config = config_in(tmp_path)
    config_map, job = manifest(
        config, "--workers", 2, "--gpus", 8, "--cpus", "64", "--memory", "500Gi", "--namespace", "team", "--restarts", 5,
        "--launcher-restarts", 9, "--grace", 120, "--claim", "other.disk:/scratch/", "--set", "seed=3",
    )  # fmt: skip
    launcher, worker = replicas(job)
    assert job["apiVersion"] == "kubeflow.org/v2beta1"
    assert job["metadata"] == {"name": "digits", "namespace": "team"}
    assert config_map["metadata"] == {"name": "digits-train", "namespace": "team"}
    assert config_map["data"]["config"] == pathlib.Path(config).read_text()
    assert job["spec"]["slotsPerWorker"] == 8
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 9}
    assert (launcher["replicas"], worker["replicas"]) == (1, 2)
    assert container_of(worker)["resources"] == {"limits": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "500Gi"}}
    assert "limits" not in container_of(launcher)["resources"]
    assert container_of(launcher)["args"] == [
        "lockstep", "--hosts", "@/etc/mpi/hostfile", "--restarts", "5", "train", "/etc/lockstep/config/digits.pbtxt",
        "--set", "seed=3",
    ]  # fmt: skip
    for replica in (launcher, worker):
        assert pod_of(replica)["terminationGracePeriodSeconds"] == 120
        assert container_of(replica)["workingDir"] == "/data"
        volumes = {volume["name"]: volume for volume in pod_of(replica)["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container_of(replica)["volumeMounts"]}
        assert mounts["/data"]["persistentVolumeClaim"] == {"claimName": "disk"}
        assert mounts["/scratch"]["persistentVolumeClaim"] == {"claimName": "other.disk"}
        assert mounts["/etc/lockstep"]["configMap"]["name"] == "digits-train"
        assert {mount["name"] for mount in container_of(replica)["volumeMounts"]} == set(volumes)
    assert mounts["/dev/shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}


def test_cpus(tmp_path):
    _, job = manifest(config_in(tmp_path), "--gpus", 0, "--ranks-per-worker", 2)
    _, worker = replicas(job)
    assert job["spec"]["slotsPerWorker"] == 2 and "resources" not in container_of(worker)
    assert "namespace" not in job["metadata"]


ODD_NAME = "a b'\"\\$(HOME)$$ü\u2028\x7f\n#: {x}.pbtxt"


@pytest.mark.parametrize(
    "text",
    ["# $(HOME) 'x' \"y\" \\ \ttab  \n\n   # spaces   \n%x: |\n", "# \x7f\n", "# no newline", "# \u2028\ufeff\U0001f600\n", "#\r\n",
     "# two\n\n", "   # first line\n"],
)  # fmt: skip
def test_texts_are_what_they_were(tmp_path, text):
    """Checks that a YAML parser and Kubernetes' replacing of variables give back the config and the words."""
    comment = "".join(line if line.strip().startswith("#") else "#" + line for line in text.splitlines(keepends=True))
    config = tmp_path / ODD_NAME
    config.write_bytes((digits_config("max_steps: 3") + "\n" + comment).encode())
    config_map, job = manifest(config, "--set", "run_dir=/data/$(HOME)'\"$$x ü", image="a$(HOME)")
    launcher, worker = replicas(job)
    assert config_map["data"]["config"].encode() == config.read_bytes()
    args = [expanded(word, {"HOME": "/root"}) for word in container_of(launcher)["args"]]
    assert args[-3:] == [f"/etc/lockstep/config/{ODD_NAME}", "--set", "run_dir=/data/$(HOME)'\"$$x ü"]
    (volume,) = [volume for volume in pod_of(worker)["volumes"] if "configMap" in volume]
    assert volume["configMap"]["items"][0] == {"key": "config", "path": f"config/{ODD_NAME}"}
    assert container_of(worker)["image"] == "a$(HOME)"  # Kubernetes replaces variables in commands alone
    assert job["metadata"]["name"] == "a-b-home-x"


def test_a_text_that_yaml_cannot_hold(tmp_path):
    config = tmp_path / "c.pbtxt"
    config.write_bytes(digits_config("max_steps: 3").encode() + b"\n# \xff\n")
    run = Run(["kubernetes", config, "--image", "i", "--claim", "disk:/data"])
    expect_error(run, USAGE, "is not UTF-8, which Kubernetes takes alone")


@pytest.mark.parametrize(
    "words,parts",
    [
        (["--name", "Digits"], ['--name "Digits": Kubernetes takes small letters, digits and -']),
        (["--name", "1st"], ['--name "1st"', "a letter first"]),
        (["--name", "a.b"], ['--name "a.b"']),
        (["--name", "x-"], ['--name "x-"']),
        (["--name", "x" * 55], ["here at most 54 characters"]),
        (["--name", "x" * 52, "--workers", "1001"], ["here at most 51 characters"]),
        (["--namespace", "Team"], ['--namespace "Team"']),
        (["--image", "a b"], ['--image "a b": no image has such a name']),
        (["--image", ""], ['--image "": no image has such a name']),
        (["--cpus", "many"], ['--cpus "many": no quantity']),
        (["--memory", "64GB"], ['--memory "64GB": no quantity: write 16, 500m or 64Gi, say']),
        (["--memory", "0Gi"], ['--memory "0Gi": no quantity']),
        (["--claim", "disk"], ["--claim disk: no folder is named: write disk:/data, say"]),
        (["--claim", "disk:"], ["--claim disk:", "is no folder's whole path"]),
        (["--claim", "disk:data"], ['"data" is no folder\'s whole path: write disk:/data, say']),
        (["--claim", "disk:/a/../b"], ["is no folder's whole path"]),
        (["--claim", "disk:/"], ["is no folder's whole path"]),
        (["--claim", "disk:/a:b"], ["is no folder's whole path"]),
        (["--claim", "Disk:/x"], ['"Disk" is no claim\'s name']),
        (["--claim", "other:/data"], ["--claim other:/data: disk is mounted there, too"]),
        (["--claim", "disk:/dev/shm"], ["the pods have something else in /dev/shm"]),
        (["--claim", "disk:/etc"], ["the pods have something else in /etc/lockstep"]),
        (["--workers", "0"], ["--workers"]),
        (["--set", "seeed=3"], ['no field "seeed"; did you mean "seed"?']),
    ],
)  # fmt: skip
def test_what_kubernetes_would_refuse(tmp_path, words, parts):
    image = [] if "--image" in words else ["--image", "i"]
    run = Run(["kubernetes", config_in(tmp_path), *image, "--claim", "disk:/data", *words])
    expect_error(run, USAGE, *parts)
    assert not run.out


def test_longest_names(tmp_path):
    _, job = manifest(config_in(tmp_path), "--name", "x" * 54)
    assert job["metadata"]["name"] == "x" * 54
    _, job = manifest(config_in(tmp_path, "9-My_Net.." + "y" * 90 + ".pbtxt"))
    assert re.fullmatch("my-net-y{42}", job["metadata"]["name"])


def test_what_no_manifest_can_be_made_of(tmp_path):
    config = config_in(tmp_path)
    words = ["--image", "i", "--claim", "disk:/data"]
    expect_error(Run(["kubernetes", tmp_path / "none.pbtxt", *words]), USAGE, "none.pbtxt: no config can be read from it")
    expect_error(Run(["kubernetes", config, "--claim", "disk:/data"]), USAGE, "--image is required")
    unnamed = config_in(tmp_path, "1.pbtxt")
    expect_error(Run(["kubernetes", unnamed, *words]), USAGE, '--name "": Kubernetes takes small letters')


def test_the_run_folder_is_in_a_claim(tmp_path):
    config = config_in(tmp_path)
    expect_error(Run(["kubernetes", config, "--image", "i"]), USAGE, "run_dir runs/digits: no --claim holds it")
    for folder in ("/database/x", "../x", "/"):
        run = Run(["kubernetes", config, "--image", "i", "--claim", "disk:/data", "--set", f"run_dir={folder}"])
        expect_error(run, USAGE, f"run_dir {folder}: no --claim holds it, so the run would be lost with its pod")
    manifest(config, "--set", "run_dir=/data/x")


def test_data_of_the_volume(tmp_path):
    """Checks that the data need not be on this machine, but that pods can find them."""
    data = 'data {{ format: CSV train: "{}" csv {{ scale: 0.0625 }} }} model {{ name: "mlp" }}'
    manifest(write_config(tmp_path, data.format("/data/digits.csv")))
    config = write_config(tmp_path, data.format("digits.csv"))
    run = Run(["kubernetes", config, "--image", "i", "--claim", "disk:/data"])
    expect_error(run, USAGE, "data.train: digits.csv: the machines that train do not see this config's folder")


# The schemas.

VARIANTS = {
    "usual": [],
    "all": ["--workers", 3, "--gpus", 4, "--ranks-per-worker", 2, "--cpus", "8", "--memory", "1.5Gi", "--namespace", "t",
            "--claim", "disk:/more", "--claim", "b.c:/c", "--set", "seed=1"],
    "cpu": ["--gpus", 0],
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_operator_accepts_it(tmp_path, variant):
    """Checks the conditions of the operator's own validation (pkg/apis/kubeflow/validation/validation.go, v0.8.2)."""
    _, job = manifest(config_in(tmp_path), *VARIANTS[variant])
    launcher, worker = replicas(job)
    longest = f"{job['metadata']['name']}-worker-{worker['replicas'] - 1}"
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", longest) and len(longest) <= 63
    assert job["spec"]["slotsPerWorker"] >= 1 and job["spec"]["sshAuthMountPath"]
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    assert job["spec"]["runPolicy"]["backoffLimit"] >= 0
    assert launcher["replicas"] == 1 and worker["replicas"] >= 1
    for replica in (launcher, worker):
        assert replica["restartPolicy"] in ("Never", "OnFailure")
        assert "restartPolicy" not in pod_of(replica)  # the operator would warn of it


KEYWORDS = {
    "type", "properties", "additionalProperties", "items", "required", "enum", "pattern", "format", "default", "anyOf",
    "minimum", "description", "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
}  # fmt: skip
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def mistakes(schema, value, place="job"):
    """Yields what Kubernetes' strict validation finds in `value` by a schema of a CRD (openAPIV3Schema): a field that
    the schema does not have is a mistake, too."""
    assert set(schema) <= KEYWORDS, set(schema) - KEYWORDS
    if schema.get("x-kubernetes-int-or-string"):
        if type(value) not in (int, str) or not re.search(schema.get("pattern", ""), str(value)):
            yield f"{place}: {value!r} is no number or text of the pattern"
        return
    if type(value) is not TYPES[schema["type"]]:
        yield f"{place}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place}: {value!r} does not match"
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31 or value_below(schema, value):
        yield f"{place}: {value!r} is out of range"
    for name in schema.get("required", []):
        if name not in value:
            yield f"{place}: no {name}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from mistakes(schema["items"], item, f"{place}[{number}]")
    # An object without properties, such as a CRD's metadata, is checked elsewhere.
    if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        for name, item in value.items():
            field = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if field is None:
                yield f"{place}: unknown field {name}"
            else:
                yield from mistakes(field, item, f"{place}.{name}")


def value_below(schema, value):
    return "minimum" in schema and value < schema["minimum"]


@pytest.fixture(scope="module")
def schema():
    if not CRD:
        pytest.skip("needs $MPI_OPERATOR_CRD: the operator's manifests/base/kubeflow.org_mpijobs.yaml")
    crd = yaml.safe_load(pathlib.Path(CRD).read_text())
    (version,) = [version for version in crd["spec"]["versions"] if version["name"] == "v2beta1"]
    return version["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_published_schema(tmp_path, schema, variant):
    _, job = manifest(config_in(tmp_path), *VARIANTS[variant])
    assert list(mistakes(schema, job)) == []


def test_mistakes_are_found(tmp_path, schema):
    """Checks that the schema, and this file's reading of it, would find mistakes."""

    def found(change):
        _, job = manifest(config_in(tmp_path))
        change(job["spec"], *replicas(job))
        return "\n".join(mistakes(schema, job))

    assert "unknown field slotsPerWorkers" in found(lambda spec, *_: spec.update(slotsPerWorkers=1))
    assert "'8' is no integer" in found(lambda spec, *_: spec.update(slotsPerWorker="8"))
    assert "is none of" in found(lambda spec, *_: spec.update(mpiImplementation="LAM"))
    assert "no name" in found(lambda _, launcher, worker: container_of(worker).pop("name"))
    assert "unknown field mount" in found(lambda _, l, worker: container_of(worker)["volumeMounts"][0].update(mount="x"))
    assert "no number or text" in found(lambda _, l, w: container_of(w)["resources"]["limits"].update(memory="64GB"))


class Models:
    """Reads the models of Kubernetes' Python client without running them: the names, JSON names and types of each
    model's fields."""

    def __init__(self, wheel):
        self.fields, self.required = {}, {}
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                if re.fullmatch(r"kubernetes/client/models/v1_\w+\.py", path):
                    self.read(archive.read(path).decode())

    def read(self, text):
        (model,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        maps = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in model.body
            if isinstance(node, ast.Assign) and node.targets[0].id in ("openapi_types", "attribute_map")
        }
        names = maps["attribute_map"]
        self.fields[model.name] = {names[field]: kind for field, kind in maps["openapi_types"].items()}
        required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
        self.required[model.name] = {names[field] for field in required}

    def mistakes(self, kind, value, place):
        if match := re.fullmatch(r"(dict\(str, |list\[)(.*)[)\]]", kind):
            if type(value) is not (dict if "dict" in kind else list):
                yield f"{place}: {value!r} is no {kind}"
                return
            for name, item in value.items() if "dict" in kind else enumerate(value):
                yield from self.mistakes(match[2], item, f"{place}.{name}")
        elif kind in self.fields:
            if type(value) is not dict:
                yield f"{place}: {value!r} is no {kind}"
                return
            for name in sorted(self.required[kind] - set(value)):
                yield f"{place}: no {name}"
            for name, item in value.items():
                if name not in self.fields[kind]:
                    yield f"{place}: {kind} has no field {name}"
                else:
                    yield from self.mistakes(self.fields[kind][name], item, f"{place}.{name}")
        elif kind != "object" and type(value) is not {"str": str, "int": int, "bool": bool}[kind]:
            yield f"{place}: {value!r} is no {kind}"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs a package index with {KUBERNETES}: {done.stderr.strip()[-200:]}")
    (wheel,) = folder.iterdir()
    return Models(wheel)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.all_tier("it downloads Kubernetes' Python client, 2 MB")
def test_kubernetes_own_models(tmp_path, models, variant):
    config_map, job = manifest(config_in(tmp_path), *VARIANTS[variant])
    assert list(models.mistakes("V1ConfigMap", config_map, "map")) == []
    assert list(models.mistakes("V1ObjectMeta", job["metadata"], "metadata")) == []
    for replica in replicas(job):
        assert list(models.mistakes("V1PodTemplateSpec", replica["template"], "template")) == []
    container_of(replica)["volumeMounts"][0]["mount"] = "x"
    del container_of(replica)["name"]
    found = list(models.mistakes("V1PodTemplateSpec", replica["template"], "template"))
    assert len(found) == 2 and "no name" in found[0] and "no field mount" in found[1], found


# The scripts.

OPERATORS_VARIABLES = {  # with which the operator of v0.8.2 starts the launcher
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_set_default_slots": "2",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}

# Stands for ssh: a host can be reached if $HOSTS has a file of its name.
SSH = """#!/bin/sh
while :; do
  case $1 in
    -o) shift 2 ;;
    -n) shift ;;
    *) break ;;
  esac
done
[ -e "$HOSTS/$1" ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
shift
exec sh -c "$*"
"""


def why_no_containers():
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return done.stderr.strip()


needs_containers = pytest.mark.skipif(bool(why_no_containers()), reason=why_no_containers() or "none")


class Pods:
    """Runs the containers of a manifest on this machine, with files of their own below /etc."""

    def __init__(self, folder, config_map, job, hosts=("localhost",)):
        self.folder, self.job = folder, job
        self.etc, self.bin, self.hosts = folder / "etc", folder / "bin", folder / "hosts"
        shutil.copytree("/etc", self.etc, symlinks=True, ignore_dangling_symlinks=True)
        (self.etc / "mpi").mkdir()
        (self.etc / "mpi/hostfile").write_text("".join(f"{host} slots=2\n" for host in hosts))
        (volume,) = [v for v in pod_of(replicas(job)[0])["volumes"] if "configMap" in v]
        for item in volume["configMap"]["items"]:
            file = self.etc / "lockstep" / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(config_map["data"][item["key"]])
        self.hosts.mkdir()
        self.bin.mkdir()
        self.add_program("ssh", SSH)
        (self.bin / "lockstep").symlink_to(LOCKSTEP)

    def add_program(self, name, text):
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def start(self, replica, **variables):
        """Starts the command of a container as process 1 of a process namespace. Its output goes to the file `out`."""
        container = container_of(replica)
        environment = dict(os.environ, **OPERATORS_VARIABLES, HOSTS=str(self.hosts), PATH=f"{self.bin}:{os.environ['PATH']}")
        environment.update(variables)
        words = [expanded(word, environment) for word in container["command"] + container.get("args", [])]
        mount = f'mount --make-rprivate / && mount --bind "{self.etc}" /etc && exec "$@"'
        with open(self.folder / "out", "a") as out:
            return Container(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", mount, "sh", *words],
                cwd=container["workingDir"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self):
        return (self.folder / "out").read_text()


class Container(subprocess.Popen):
    def __exit__(self, *unused):
        self.kill()  # with unshare, its child ends, which is process 1, and so all others
        self.wait()

    def terminate_first(self):
        """Sends SIGTERM to process 1."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        wait_until(lambda: children.read_text())
        os.kill(int(children.read_text()), signal.SIGTERM)

    def status(self):
        return self.wait(LONG_S)


@pytest.fixture
def pods(tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    config = config_in(tmp_path)
    config_map, job = manifest(config, "--gpus", 0, "--ranks-per-worker", 2, claim=f"disk:{volume}")
    return Pods(tmp_path, config_map, job)


@needs_containers
def test_the_launcher_trains(pods, tmp_path):
    """Runs the launcher's command as it is, until Kubernetes takes the pod away, and again in the next pod."""
    run_dir = tmp_path / "volume/runs/digits"
    (pods.hosts / "localhost").touch()
    launcher, _ = replicas(pods.job)
    with pods.start(launcher) as container:
        wait_until(lambda: ',"step":20,' in log_text(run_dir))
        container.terminate_first()
        assert container.status() == STOPPED, pods.said()
    with pods.start(launcher) as container:
        assert container.status() == DONE, pods.said()
    (start, again) = events(run_dir, "start")
    assert len(events(run_dir, "stopped")) == len(events(run_dir, "resume")) == 1
    assert start["world_size"] == again["world_size"] == 2
    whole = train(config_in(tmp_path), tmp_path / "whole", ranks=2)
    assert whole.status == DONE, whole
    assert losses_by_step(run_dir) == losses_by_step(tmp_path / "whole")


# Stands for lockstep: takes a status from the file `statuses` and ends with it; `wait` stands for a run that saves its
# state when it gets SIGTERM.
PROGRAM = """#!/bin/sh
read -r status <"$FOLDER/statuses"
sed -i 1d "$FOLDER/statuses"
echo "$@" >>"$FOLDER/calls"
[ "$status" = wait ] || exit "$status"
trap 'exit 75' TERM
touch "$FOLDER/runs"
while :; do sleep 0.1; done
"""


@needs_containers
@pytest.mark.parametrize(
    "statuses,ends,calls",
    [
        ([DONE], DONE, 1),
        ([STOPPED, STOPPED, DONE], DONE, 3),  # workers were taken away
        ([INTERRUPTED], DONE, 1),  # lockstep stop
        ([STOPPED, PEER], PEER, 2),
        ([USAGE], USAGE, 1),
    ],
)
def test_how_the_launcher_ends(pods, tmp_path, statuses, ends, calls):
    pods.add_program("lockstep", PROGRAM)
    (tmp_path / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    (pods.hosts / "localhost").touch()
    launcher, _ = replicas(pods.job)
    with pods.start(launcher, FOLDER=str(tmp_path)) as container:
        assert container.status() == ends, pods.said()
    lines = (tmp_path / "calls").read_text().splitlines()
    assert lines == [" ".join(container_of(launcher)["args"][1:])] * calls


@needs_containers
def test_the_launcher_waits_for_workers(pods, tmp_path):
    """Checks that nothing starts before all workers can be reached, and that a waiting launcher can be ended."""
    pods.add_program("lockstep", PROGRAM)
    (tmp_path / "statuses").write_text("wait\n")
    (pods.etc / "mpi/hostfile").write_text("localhost slots=2\nw1 slots=2\n")
    (pods.hosts / "localhost").touch()
    launcher, _ = replicas(pods.job)
    with pods.start(launcher, FOLDER=str(tmp_path)) as container:
        wait_until(lambda: pods.said() == "launcher: waits for w1\n")
        container.terminate_first()
        assert container.status() == STOPPED
    assert not (tmp_path / "calls").exists()
    with pods.start(launcher, FOLDER=str(tmp_path)) as container:
        wait_until(lambda: pods.said().count("waits for w1") == 2)
        (pods.hosts / "w1").touch()
        wait_until(lambda: (tmp_path / "runs").exists())
        container.terminate_first()
        assert container.status() == STOPPED
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


# Stands for a rank, which ends some time after SIGUSR2.
RANK = """import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(*unused):
    (folder / "asked").touch()
    while not (folder / "may save").exists(): time.sleep(0.05)
    (folder / "saved").touch()
    sys.exit(75)
signal.signal(signal.SIGUSR2, end)
(folder / "runs").touch()
while True: time.sleep(60)
"""


@needs_containers
def test_a_worker_is_taken_away(pods, tmp_path):
    """Checks that a worker lets its ranks save their state before it ends, and lets no more connections in."""
    pods.add_program("sshd", f'#!/bin/sh\n"{sys.executable}" "{tmp_path}/rank.py" "{tmp_path}" /etc/lockstep/config/digits.pbtxt &\nexec sleep 1000\n')
    (tmp_path / "rank.py").write_text(RANK)
    script = pods.etc / "lockstep/worker.sh"
    assert script.read_text().count("/usr/sbin/sshd -D") == 1
    script.write_text(script.read_text().replace("/usr/sbin/sshd", "sshd").replace("mkdir -p /run/sshd", ""))
    _, worker = replicas(pods.job)
    with pods.start(worker) as container:
        wait_until(lambda: (tmp_path / "runs").exists())
        container.terminate_first()
        wait_until(lambda: (tmp_path / "asked").exists())
        (tmp_path / "may save").touch()
        assert container.status() == 0, pods.said()
    assert (tmp_path / "saved").exists()  # if process 1 had ended before, the kernel would have killed the rank
