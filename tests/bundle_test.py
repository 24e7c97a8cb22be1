"""Tests `lockstep bundle`: the program in the archive that it writes trains on a machine that has only Python and the
torch wheel, and prints one error line if something is missing."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

from bare_machine import NAMESPACE, PYTHON, SITE, BareMachine, why_there_is_none
from harness import (
    CHECKPOINT,
    DEVICE,
    DIGITS,
    DONE,
    LOCKSTEP,
    STOPPED,
    USAGE,
    Run,
    command_of,
    digits_data,
    events,
    expect_error,
    path_of,
    processes_of,
    rows_of,
    sets,
    skip_without_gpus,
    train,
    wait_until,
    write_config,
)
from open_mpi_5 import launchers_of_bundles, open_mpi_5, own_series  # noqa: F401: open_mpi_5 is a fixture

OWN_MODEL = path_of("OWN_MODEL")

needs_mounts = pytest.mark.skipif(why_there_is_none() is not None, reason=str(why_there_is_none()))

# The program's path in the bundle.
PROGRAM = "bin/torch-2.11/lockstep"

# Matches the libraries of glibc and of the C++ compiler's runtime, which the bundle expects on every machine.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|util|resolv|stdc\+\+|gcc_s))\.so\.\d+")

TRAIN = f"""epochs: 60 optimizer {{ lr: 0.002 weight_decay: 0.01 }} schedule {{ type: COSINE }}
    {digits_data("validation_fraction: 0.2")} model {{ mlp {{ hidden: [256, 128] }} }}"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "lockstep.tar.gz"
    run = Run(["bundle", path])
    assert run.status == DONE, run
    assert re.fullmatch(rf"{path}: \d+\.\d MB, \d+ files; tar -xzf it anywhere and run lockstep/lockstep\n", run.out), run
    assert os.listdir(path.parent) == ["lockstep.tar.gz"]
    return path


def unpack(archive, folder):
    with tarfile.open(archive) as file:
        file.extractall(folder)
    return pathlib.Path(folder) / "lockstep"


@pytest.fixture
def bundle(archive, tmp_path):
    """Unpacks the archive, and returns the bundle's folder."""
    return unpack(archive, tmp_path)


def machine_with(archive, folder):
    """Returns a bare machine with the unpacked bundle, the digits and a config in /work."""
    machine = BareMachine(folder / "root")
    unpack(archive, machine.root / "work")
    shutil.copy(DIGITS, machine.root / "work/digits.csv")
    write_config(machine.root / "work", TRAIN.replace(str(DIGITS), "/work/digits.csv"))
    return machine


@pytest.fixture(scope="module")
def machine(archive, tmp_path_factory):
    return machine_with(archive, tmp_path_factory.mktemp("machine"))


def start(bundle, *arguments, python=sys.executable, env=None):
    """Runs the start script as `python bundle/lockstep`, with `env` as the only environment variables."""
    variables = [f"{name}={value}" for name, value in (env or {}).items()]
    launcher = ["env", "-i", *variables, *([python] if isinstance(python, str) else python)]
    return Run(arguments, program=bundle / "lockstep", launcher=launcher)


def run_bare(machine, *arguments, env=None, ranks=None):
    """Runs the bundle's start script on a bare machine, with an empty PATH."""
    launcher = [*machine.launcher({"PATH": "", "HOME": "/work", **(env or {})}), PYTHON]
    return Run(arguments, ranks=ranks, program="/work/lockstep/lockstep", launcher=launcher)


def test_the_archive_is_small_and_plain(archive):
    assert archive.stat().st_size <= 60e6
    with tarfile.open(archive) as file:
        members = file.getmembers()
    for member in members:
        assert member.name.split("/")[0] == "lockstep"
        assert member.isdir() or member.isreg()  # some notebook services may be unable to unpack links
        assert (member.uid, member.gid, member.mtime) == (0, 0, 0)
    names = {m.name for m in members if m.isreg()}
    with tarfile.open(archive) as file:
        manifest = json.load(file.extractfile("lockstep/manifest.json"))
    assert {f"lockstep/{name}" for name in manifest["files"]} == names - {"lockstep/manifest.json"}
    executable = {m.name for m in members if m.isreg() and m.mode & 0o111}
    launchers = {f"lockstep/bin/{name}" for name in launchers_of_bundles()}
    assert executable == {"lockstep/lockstep", f"lockstep/{PROGRAM}"} | launchers


@pytest.mark.all_tier("it packs the bundle again")
def test_the_same_program_gives_the_same_bytes(archive, tmp_path):
    assert Run(["bundle", tmp_path / "again.tar.gz"]).status == DONE
    assert (tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()


def test_every_library_is_in_it_or_elsewhere_once(bundle):
    """Checks that each library that a file of the bundle needs is in the bundle, in the system or in a wheel, and that
    no library is in both the bundle and a wheel."""
    (program,) = json.loads((bundle / "manifest.json").read_text())["programs"]
    here = {path.name for path in (bundle / "lib").iterdir() if path.is_file()}
    wheels = set(program["wheels"])
    for name, wheel in program["wheels"].items():
        assert (SITE / wheel["file"]).name == name and (SITE / wheel["file"]).is_file()
    binaries = [p for p in bundle.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries) > 30
    said = subprocess.run(["readelf", "-d", *binaries], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", said))
    assert {"libmpi.so.40", "libtorch_cpu.so", "libnccl.so.2"} <= needed
    assert not [name for name in needed if name not in here | wheels and not SYSTEM.fullmatch(name)]
    assert not [name for name in here if SYSTEM.fullmatch(name)]
    in_wheels = {path.name for folder in (SITE / "torch/lib", *SITE.glob("nvidia/*/lib")) for path in folder.iterdir()}
    assert not here & in_wheels


@needs_mounts
@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank trains from a bundle as two do", unless=lambda ranks: ranks == 2)
def test_trains_and_predicts_on_a_bare_machine(machine, ranks):
    skip_without_gpus(ranks)
    name = f"run{ranks}"
    run = run_bare(machine, "train", "config.pbtxt", "--set", f"run_dir=/work/{name}", ranks=ranks)
    assert run.status == DONE, run
    assert f"on {ranks or 1} rank" in run.out
    done = events(machine.root / "work" / name, "done")[0]
    assert done["val_accuracy"] > 0.95
    rows = DIGITS.read_text().split()
    (machine.root / "work/new.csv").write_text("".join(row.rsplit(",", 1)[0] + "\n" for row in rows))
    run = run_bare(machine, "predict", name, "--input", "new.csv", "--output", f"{name}.csv", ranks=ranks)
    assert run.status == DONE, run
    labels = [row["label"] for row in rows_of(machine.root / f"work/{name}.csv")]
    right = [label == row.rsplit(",", 1)[1] for label, row in zip(labels, rows, strict=True)]
    assert sum(right) > 0.98 * len(rows)


@needs_mounts
def test_its_own_example_trains(machine):
    run = run_bare(
        machine, "train", "lockstep/examples/digits/train.pbtxt", "--set", "epochs=1", "--set", f"device={DEVICE}"
    )
    assert run.status == DONE, run
    assert (machine.root / "work/runs/train/weights.safetensors").exists()


@needs_mounts
def test_the_script_finds_its_python(machine):
    """Starts the script as an executable, and checks that its shebang finds python3 in PATH."""
    run = Run(["version"], program="/work/lockstep/lockstep", launcher=machine.launcher({"PATH": "/usr/bin"}))
    assert run.out == Run(["version"]).out


def expect_each_library_once(machine, *names):
    """Checks that each of two ranks that train has loaded each library once, and has loaded those of `names`. The ranks
    have no HOME, and their user is not in /etc/passwd."""
    run_dir = machine.root / "work/endless"
    words = ["train", "/work/config.pbtxt"]
    words += sets("run_dir=/work/endless", "epochs=1000000", "schedule.type=CONSTANT")
    launcher = [*machine.launcher({"PATH": ""}), PYTHON]
    command = command_of(words, ranks=2, program="/work/lockstep/lockstep", launcher=launcher)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or '"event":"step"' in read(run_dir / "log.jsonl"), 120)
        assert process.poll() is None
        begin = f"/work/lockstep/{PROGRAM} train "
        ranks = [pid for pid, text in processes_of("run_dir=/work/endless").items() if text.startswith(begin)]
        assert len(ranks) == 2
        for rank in ranks:
            maps = pathlib.Path(f"/proc/{rank}/maps").read_text()
            paths = {line.split(None, 5)[5] for line in maps.splitlines() if ".so" in line}
            loaded = [os.path.basename(path) for path in paths]
            assert {"libmpi.so.40", "libnccl.so.2", "libcudnn.so.9", "libtorch_cpu.so", *names} <= set(loaded)
            assert len(loaded) == len(set(loaded)), sorted(paths)
    finally:
        process.send_signal(signal.SIGUSR2)
        assert process.wait(timeout=120) == STOPPED


@needs_mounts
def test_no_library_is_loaded_twice(machine):
    skip_without_gpus(2)
    expect_each_library_once(machine, *(["mca_btl_vader.so"] if own_series() == "4" else []))


@needs_mounts
@pytest.mark.all_tier("it packs another bundle, with PyPI's Open MPI 5")
def test_a_bundle_with_open_mpi_5(open_mpi_5, tmp_path):
    """Packs a bundle with Open MPI 5. On a bare machine, which has no Open MPI, it trains two ranks, and stops them."""
    skip_without_gpus(2)
    archive = tmp_path / "lockstep.tar.gz"
    packed = Run(["bundle", archive], env=open_mpi_5)
    assert packed.status == DONE, packed
    machine = machine_with(archive, tmp_path)
    programs = {path.name for path in (machine.root / "work/lockstep/bin").iterdir()}
    assert programs == {"torch-2.11", "mpirun", "ompirun_wrapper", "prted", "prterun"}
    run = run_bare(machine, "train", "config.pbtxt", "--set", "run_dir=/work/run", ranks=2)
    assert run.status == DONE and "on 2 ranks" in run.out, run
    assert events(machine.root / "work/run", "done")[0]["val_accuracy"] > 0.95
    expect_each_library_once(machine, "libopen-pal.so.80", "libpmix.so.2")
    # A finding of doctor has the version, which mpirun and prterun read from the bundle's texts.
    run = run_bare(machine, "doctor", ranks=2)
    assert re.search(r"^ok +mpi +Open MPI 5\S+ \(PMIx 5\S+, PRRTE 3\S+\), 2 ranks on 1 machine$", run.out, re.M), run


@pytest.mark.all_tier("it installs Open MPI 5")
def test_an_mpirun_of_another_series(open_mpi_5, tmp_path):
    if own_series() != "4":
        pytest.skip("needs a machine with Open MPI 4")
    run = Run(["bundle", tmp_path / "b.tar.gz"], env={"PATH": open_mpi_5["PATH"]})
    expect_error(run, USAGE, "/mpirun is of Open MPI 5, and the program takes a libmpi of Open MPI 4")


def test_it_needs_no_newer_glibc_than_the_program(bundle):
    """Checks that no library of the bundle needs a newer glibc than the program. Debian 12's libevent refers to a
    function that glibc has had since version 2.36, so it could not be loaded on Ubuntu 22.04, which has glibc 2.35.
    `lockstep bundle` makes this reference weak (launch/bundle/weak_symbols.h). Open MPI does not need the function: the
    tests on a bare machine train without it."""

    def versions(*paths):
        said = subprocess.run(["objdump", "-p", *paths], capture_output=True, text=True, check=True).stdout
        return {int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)\b", said)}

    binaries = [path for path in (bundle / "lib").rglob("*.so*") if path.is_file()]
    assert len(binaries) > 30
    newest = max(versions(bundle / PROGRAM))
    assert max(versions(*binaries)) <= newest
    assert json.loads((bundle / "manifest.json").read_text())["glibc"] == f"2.{newest}"


def read(path):
    return path.read_text() if path.exists() else ""


@needs_mounts
def test_a_machine_without_torch(archive, tmp_path):
    machine = BareMachine(tmp_path / "root", torch=False)
    unpack(archive, machine.root / "work")
    run = run_bare(machine, "version")
    expect_error(run, USAGE, f"no torch in {PYTHON}", "pip install torch==2.11.0", "LOCKSTEP_TORCH")
    # LOCKSTEP_TORCH names the folder of a torch that is installed elsewhere.
    machine.mount(SITE, "/opt/site")
    for place in ("/opt/site", "/opt/site/torch"):
        assert run_bare(machine, "version", env={"LOCKSTEP_TORCH": place}).status == DONE


def documented_wheels():
    """Returns {name: version} of the wheels that the `pip download` command of docs/notebooks.md fetches for a
    container image whose Python has another torch."""
    (command,) = re.findall(r"pip download (?:.*\\\n)*.*", pathlib.Path("docs/notebooks.md").read_text())
    return dict(re.findall(r"([\w-]+)==(\S+)", command))


def links_to(wheels, site):
    """Fills the folder `site` with links to the libraries and version files of `wheels`, a dict {name: version}."""
    for name, version in wheels.items():
        record = SITE / f"{name.replace('-', '_')}-{version}.dist-info/RECORD"
        for (path, *_) in csv.reader(record.read_text().splitlines()):
            if re.match(r"torch/lib/lib|torch/version.py|nvidia/.*/lib/lib|.*dist-info/METADATA", path):
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).symlink_to(SITE / path)


def test_the_documented_wheels_are_those_that_it_loads(bundle):
    (program,) = json.loads((bundle / "manifest.json").read_text())["programs"]
    loaded = {wheel["package"]: wheel["version"] for wheel in program["wheels"].values()}
    assert documented_wheels() == loaded | dict(re.findall(r"([\w-]+)==(\S+)", program["pip"]))


@needs_mounts
def test_trains_beside_another_torch_with_the_documented_wheels(archive, tmp_path):
    """Checks that the bundle refuses a Python with another torch, and that it trains with this Python if LOCKSTEP_TORCH
    names the folder of the documented wheels. Kaggle is such a case: its image's Python has torch 2.9."""
    machine = BareMachine(tmp_path / "root", torch=False)
    torch = machine.root / machine.packages.lstrip("/") / "torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n")
    links_to(documented_wheels(), machine.root / "work/wheels")
    machine.mount(SITE, str(SITE))  # the links in /work/wheels lead to this folder
    unpack(archive, machine.root / "work")
    shutil.copy(DIGITS, machine.root / "work/digits.csv")
    write_config(machine.root / "work", TRAIN.replace(str(DIGITS), "/work/digits.csv").replace("epochs: 60", "epochs: 10"))
    words = ["train", "config.pbtxt", "--set", "run_dir=/work/run"]
    expect_error(run_bare(machine, *words), USAGE, f"torch 2.9.1+cu128 in {machine.packages}", "or set LOCKSTEP_TORCH")
    run = run_bare(machine, *words, env={"LOCKSTEP_TORCH": "/work/wheels"})
    assert run.status == DONE, run
    assert events(machine.root / "work/run", "done")[0]["val_accuracy"] > 0.9
    run = run_bare(machine, "doctor", "--json", env={"LOCKSTEP_TORCH": "/work/wheels"})
    states = {finding["check"]: finding["state"] for finding in map(json.loads, run.out.split("\n")[:-1])}
    assert states["libraries"] == "ok", run


def fake_site(folder, version="2.11.0+cu130", cuda="'13.0'", without="", dist_info=()):
    """Returns a copy of the site-packages folder, made of links, in which torch has the version `version` and the CUDA
    version `cuda`, the file `without` is missing, and packages have the versions in `dist_info`."""
    site = folder / "site"
    changed = {"torch", *(name.partition("-")[0] for name in dist_info), without.split("/")[0]}
    site.mkdir()
    for path in SITE.iterdir():
        if path.name not in ("torch", "nvidia") and path.name.partition("-")[0] not in changed:
            (site / path.name).symlink_to(path)
    for name in dist_info:
        (site / f"{name}.dist-info").mkdir()
    for package in ("torch", "nvidia"):
        for path in [SITE / package, *(SITE / package).glob("*"), *(SITE / package).glob("*/*"), *(SITE / package).glob("*/lib/*")]:
            target = site / path.relative_to(SITE)
            if str(target.relative_to(site)) == without or target.exists() or target.is_symlink():
                continue
            is_on_the_way = path.name in ("torch", "nvidia", "lib") or path.parent.name == "nvidia"
            target.mkdir() if is_on_the_way and path.is_dir() else target.symlink_to(path)
    (site / "torch/version.py").unlink()
    (site / "torch/version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n")
    (site / f"torch-{version}.dist-info").mkdir(exist_ok=True)
    return site


def test_a_torch_of_links_will_do(bundle, tmp_path):
    """Checks that the start script accepts a torch whose files are links, as uv installs them. `fake_site` makes such
    links for the tests below."""
    run = start(bundle, "version", env={"LOCKSTEP_TORCH": str(fake_site(tmp_path))})
    assert run.status == DONE, run


@pytest.mark.parametrize(
    "state,parts",
    [
        (dict(version="2.9.1+cu130"), ["torch 2.9.1+cu130 in", "needs torch 2.11.0 for CUDA 13.0: pip install torch==2.11.0"]),
        (dict(version="3.0.0", cuda="'14.0'"), ["torch 3.0.0 in", "pip install torch==2.11.0"]),
        (dict(version="2.11.0+cu128", cuda="'12.8'"), ["is built for CUDA 12.8", "pip install --force-reinstall torch==2.11.0"]),
        (dict(version="2.11.0+cpu", cuda="None"), ["is built for the CPU alone", "pip install --force-reinstall"]),
        (dict(dist_info=["nvidia_nccl_cu13-2.20.5"]), ["nvidia-nccl-cu13 2.20.5 in", "pip install nvidia-nccl-cu13==2.28.9"]),
        (dict(dist_info=["nvidia_cudnn_cu13-8.9.0"]), ["nvidia-cudnn-cu13 8.9.0 in", "pip install nvidia-cudnn-cu13=="]),
    ],
)
@pytest.mark.all_tier(
    "other versions are other lines of the same table",
    unless=lambda state: state.get("version") in ("2.9.1+cu130", "2.11.0+cpu"),
)
def test_another_torch_is_said(bundle, tmp_path, state, parts):
    run = start(bundle, "version", env={"LOCKSTEP_TORCH": str(fake_site(tmp_path, **state))})
    expect_error(run, USAGE, *parts)


@pytest.fixture
def bundle_for_three(bundle):
    """Returns a bundle whose manifest names programs for torch 2.10 and 2.15, too. Each is a script that prints the
    torch for which it stands."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    (program,) = manifest["programs"]
    for torch, cuda in (("2.10", "12.8"), ("2.15", "13.2")):
        file = f"bin/torch-{torch}/lockstep"
        pip = f"torch=={torch}.0"
        manifest["programs"].append(dict(program, file=file, torch=f"{torch}.0", cuda=cuda, pip=pip))
        (bundle / file).parent.mkdir()
        (bundle / file).write_text(f"#!/bin/sh\necho for torch {torch}\n")
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return bundle


@pytest.mark.parametrize(
    "version,cuda,said",
    [
        ("2.10.0+cu128", "12.8", "for torch 2.10"),
        ("2.11.0+cu130", "13.0", "LibTorch 2.11.0"),
        ("2.15.1+cu132", "13.2", "for torch 2.15"),
    ],
)
def test_the_program_of_the_torch_that_is_there_starts(bundle_for_three, tmp_path, version, cuda, said):
    site = fake_site(tmp_path, version=version, cuda=repr(cuda))
    run = start(bundle_for_three, "version", env={"LOCKSTEP_TORCH": str(site)})
    assert run.status == DONE and said in run.out, run


@pytest.mark.parametrize(
    "version,nearest", [("2.9.1", "2.10.0"), ("2.12.1", "2.11.0"), ("2.13.0", "2.15.0"), ("2.14.1", "2.15.0"), ("3.0.0", "2.15.0")]
)
def test_the_nearest_torch_is_named(bundle_for_three, tmp_path, version, nearest):
    site = fake_site(tmp_path, version=version)
    run = start(bundle_for_three, "version", env={"LOCKSTEP_TORCH": str(site)})
    wanted = "needs torch 2.11.0 for CUDA 13.0 or torch 2.10.0 for CUDA 12.8 or torch 2.15.0 for CUDA 13.2"
    expect_error(run, USAGE, f"torch {version} in {site}", wanted, f"pip install torch=={nearest}")


def test_another_program_must_fit(tmp_path):
    run = Run(["bundle", tmp_path / "b.tar.gz", "--also", "/bin/true"])
    expect_error(run, USAGE, "/bin/true: needs no libc10.so of LibTorch, so it is not this program")
    run = Run(["bundle", tmp_path / "b.tar.gz", "--also", LOCKSTEP])
    expect_error(run, USAGE, "were both built with torch 2.11: give one for each torch")
    assert not any(tmp_path.iterdir())


def test_no_torch_is_said(bundle, tmp_path):
    run = start(bundle, "version", env={"LOCKSTEP_TORCH": str(tmp_path)})
    expect_error(run, USAGE, f"no torch in {tmp_path}:", "pip install torch==2.11.0")
    # If a package was removed by hand, its dist-info folder may be left over.
    (tmp_path / "torch-2.11.0.dist-info").mkdir()
    expect_error(start(bundle, "version", env={"LOCKSTEP_TORCH": str(tmp_path)}), USAGE, f"no torch in {tmp_path}:")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    expect_error(start(bundle, "version", python=[python]), USAGE, f"no torch in {python}:")


@pytest.mark.parametrize(
    "library,package",
    [
        ("nvidia/cudnn/lib/libcudnn.so.9", "nvidia-cudnn-cu13=="),
        ("nvidia/cu13/lib/libcublasLt.so.13", "nvidia-cublas=="),
        ("torch/lib/libtorch_cuda.so", "torch==2.11.0"),
    ],
)
@pytest.mark.all_tier(
    "other libraries are other lines of the same table",
    unless=lambda package: package.startswith("nvidia-cudnn"),
)
def test_a_missing_library_is_said(bundle, tmp_path, library, package):
    run = start(bundle, "version", env={"LOCKSTEP_TORCH": str(fake_site(tmp_path, without=library))})
    expect_error(run, USAGE, f"{library} is not in {tmp_path}/site", f"pip install --force-reinstall {package}")


def test_a_missing_file_of_the_bundle_is_said(bundle):
    (library,) = (bundle / "lib").glob("libfmt.so.*")
    library.unlink()
    expect_error(start(bundle, "version"), USAGE, f"lib/{library.name} is missing: unpack the bundle again")
    (bundle / "manifest.json").unlink()
    expect_error(start(bundle, "version"), USAGE, "manifest.json", "unpack the bundle again")


@pytest.mark.parametrize(
    "key,value,parts",
    [
        ("architecture", "aarch64", ["is for aarch64, and this machine is "]),
        ("glibc", "2.99", ["this machine has glibc 2.", "the program needs 2.99"]),
        ("glibcxx", "GLIBCXX_3.4.99", ["libstdc++.so.6 has no GLIBCXX_3.4.99"]),
    ],
)
def test_another_machine_is_said(bundle, key, value, parts):
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps(dict(manifest, **{key: value})))
    expect_error(start(bundle, "version"), USAGE, *parts)


def test_files_that_cannot_be_executed(bundle):
    """Checks that the bundle starts although its programs have lost their executable bits. In a read-only folder the
    start fails, and the error says how to copy the bundle. Kaggle unpacks uploads without the files' modes into a
    read-only folder."""
    for path in (bundle / "bin").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    if why_there_is_none() is None:
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        run = start(bundle, "version", python=[*NAMESPACE, "/bin/sh", "-c", mount, str(bundle), sys.executable])
        expect_error(run, USAGE, "bin/mpirun may not be executed", f"cp -r {bundle} /tmp")
    assert start(bundle, "version").status == DONE


def test_the_drivers_folder_is_kept(bundle, tmp_path):
    """Checks that the script leaves the user's LD_LIBRARY_PATH at the end of the new one. In Kaggle's notebooks this
    variable contains the folder of libcuda.so.1."""
    (bundle / PROGRAM).write_text("#!/bin/sh\necho $LD_LIBRARY_PATH\necho $PATH\n")
    run = start(bundle, env={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64", "PATH": "/usr/bin"})
    libraries, path = run.out.split()
    assert libraries.startswith(f"{bundle}/lib:{SITE}/torch/lib:") and libraries.endswith(":/usr/local/nvidia/lib64")
    assert path == f"{bundle}/bin:{os.path.dirname(sys.executable)}:/usr/bin"


def test_slurm_scripts_start_the_bundle(bundle, tmp_path):
    run = start(bundle, "slurm", write_config(tmp_path, TRAIN), "--time", "1:00:00")
    assert f"\nprogram={bundle}/lockstep\n" in run.out, run


@pytest.mark.all_tier("a program with a model of its own is packed as Lockstep is")
def test_a_program_with_its_own_model_bundles_itself(tmp_path):
    assert Run(["bundle", tmp_path / "b.tar.gz"], program=OWN_MODEL).status == DONE
    with tarfile.open(tmp_path / "b.tar.gz") as file:
        file.extractall(tmp_path)
    config = write_config(tmp_path, f'epochs: 1 {digits_data()} model {{ name: "tiny_net" }}')
    run = train(config, tmp_path / "run", program=tmp_path / "tiny_net/tiny_net", launcher=[sys.executable])
    assert run.status == DONE and "tiny_net with" in run.out, run


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "b.tar.gz").write_text("mine")
    expect_error(Run(["bundle", tmp_path / "b.tar.gz"]), USAGE, f"{tmp_path}/b.tar.gz: is there already")
    assert (tmp_path / "b.tar.gz").read_text() == "mine"


def test_another_kind_of_file_is_refused(tmp_path):
    expect_error(Run(["bundle", tmp_path / "b.zip"]), USAGE, "b.zip: a bundle is a tar file")


def test_a_bundle_makes_no_bundle(bundle, tmp_path):
    run = start(bundle, "bundle", tmp_path / "b.tar.gz")
    expect_error(run, USAGE, f"this program is that of the bundle {bundle}")


@pytest.mark.parametrize("tool,package", [("strip", "binutils"), ("mpirun", "openmpi-bin"), ("ldd", "libc-bin")])
@pytest.mark.all_tier("other tools are other lines of the same table", unless=lambda tool: tool == "mpirun")
def test_a_missing_tool_is_said(tool, package, tmp_path):
    (tmp_path / "bin").mkdir()
    launchers = launchers_of_bundles()
    for name in ({"tar", "gzip", "ldd", "strip", "objdump", "ompi_info"} | launchers) - {tool}:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    run = Run(["bundle", tmp_path / "b.tar.gz"], env={"PATH": str(tmp_path / "bin")})
    expect_error(run, USAGE, f"{tool} is not installed", f"apt-get install {package}")


def test_an_archive_that_cannot_be_written(tmp_path):
    expect_error(Run(["bundle", "/nowhere/b.tar.gz"]), CHECKPOINT, "/nowhere/b.tar.gz", "No such file or directory")
    if why_there_is_none() is not None:
        pytest.skip("the rest " + why_there_is_none())
    script = 'mount -t tmpfs -o size=1m none "$0"; "$1" bundle "$0/b.tar.gz"; status=$?; ls -A "$0"; exit $status'
    run = Run([*NAMESPACE[1:], "/bin/sh", "-c", script, tmp_path, LOCKSTEP], program=NAMESPACE[0])
    expect_error(run, CHECKPOINT, "b.tar.gz", "No space left on device: make room")
    assert run.out == ""
