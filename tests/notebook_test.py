"""examples/kaggle/lockstep.ipynb, cell by cell, on a machine with nothing but a Python, the torch wheel and a bundle; what it
reads lies in a folder that cannot be written to, as on Kaggle."""

import csv
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from bare_machine import PYTHON, BareMachine, why_there_is_none
from harness import DIGITS, DONE, Run, checkpoints, events, rows_of, train

pytestmark = pytest.mark.skipif(why_there_is_none() is not None, reason=str(why_there_is_none()))

NOTEBOOK = json.loads(pathlib.Path(os.environ["NOTEBOOK"]).read_text())

# What Jupyter makes of a cell, but for a command that fails, which ends it here.
RUN_CELLS = r"""
import json, re, subprocess, sys

def shell(line):
    line = re.sub(r"\{(\w+)\}", lambda name: str(globals()[name[1]]), line)
    print("$ " + line, flush=True)
    status = subprocess.call(["/bin/bash", "-c", line])
    if status:
        sys.exit(f"status {status}")

with open(sys.argv[1]) as file:
    cells = json.load(file)["cells"]
for cell in cells:
    if cell["cell_type"] == "code":
        lines = "".join(cell["source"]).split("\n")
        exec("\n".join(f"shell({line[1:]!r})" if line.startswith("!") else line for line in lines), globals())
        sys.stdout.flush()
"""

TRAINED = 1437  # the other digits are to be predicted


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "lockstep.tar.gz"
    assert Run(["bundle", path]).status == DONE
    return path


@pytest.fixture
def machine(bundle, tmp_path):
    """With the digits as a table and as images in /work/input."""
    machine = BareMachine(tmp_path / "root")
    work = machine.root / "work"
    rows = np.loadtxt(DIGITS, delimiter=",", dtype=np.uint8)
    np.random.default_rng(0).shuffle(rows)
    names = [f"pixel{i}" for i in range(64)]
    for part, some in (("train", rows[:TRAINED]), ("test", rows[TRAINED:])):
        (work / "input/images" / part).mkdir(parents=True)
        (work / "input/table").mkdir(exist_ok=True)
        with open(work / f"input/table/{part}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow((["label"] if part == "train" else []) + names)
            writer.writerows(([row[64]] if part == "train" else []) + list(row[:64]) for row in some)
        for i, row in enumerate(some):
            folder = work / "input/images" / part / (str(row[64]) if part == "train" else "")
            folder.mkdir(exist_ok=True)
            Image.fromarray((row[:64].reshape(8, 8) * 15).repeat(3, 0).repeat(3, 1)).save(folder / f"{i:04}.png")
    machine.labels = [str(label) for label in rows[TRAINED:, 64]]
    shutil.copy(bundle, work / "input/lockstep.tar.gz")
    (work / "run_cells.py").write_text(RUN_CELLS)
    (work / "notebook.ipynb").write_text(json.dumps(NOTEBOOK))
    (work / "out").mkdir()
    machine.mount(work / "input", "/work/input", read_only=True)
    return machine


def run_notebook(machine, **env):
    places = {name: f"/work/input/{name.lower()}" for name in ("TABLE", "IMAGES")}
    variables = {"PATH": "/usr/bin", "BUNDLE": "/work/input/lockstep.tar.gz", "WORK": "/work/out", **places, **env}
    words = ["/work/run_cells.py", "/work/notebook.ipynb"]
    run = Run(words, program=PYTHON, launcher=machine.launcher(variables), timeout=600)
    assert run.status == DONE, run
    return run


def submission(machine, name):
    return rows_of(machine.root / "work/out" / name)


def check_submissions(machine):
    table = submission(machine, "submission_table.csv")
    assert [row["ImageId"] for row in table] == [str(i + 1) for i in range(len(machine.labels))]
    assert np.mean([row["Label"] == label for row, label in zip(table, machine.labels)]) > 0.93
    images = submission(machine, "submission_images.csv")
    assert [row["id"] for row in images] == [f"{i:04}.png" for i in range(len(machine.labels))]
    assert np.mean([row["label"] == label for row, label in zip(images, machine.labels)]) > 0.93


def test_trains_both_and_submits(machine):
    run = run_notebook(machine)
    check_submissions(machine)
    out = machine.root / "work/out"
    assert events(out / "runs/table", "start")[0]["samples"] == events(out / "runs/images", "start")[0]["samples"]
    assert "lockstep 0." in run.out, run
    assert not list((machine.root / "work/input").rglob("*.pbtxt"))


@pytest.mark.all_tier
def test_goes_on_from_an_earlier_session(machine, bundle):
    """From its output as an input; and with the bundle as Kaggle unpacks it, without the files' modes."""
    work = machine.root / "work"
    shutil.unpack_archive(bundle, work / "input/unpacked")
    for path in (work / "input/unpacked").rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    (work / "old.pbtxt").write_text(
        """precision: AUTO global_batch: 64 max_steps: 40 model { name: "convnet" convnet { channels: [16, 32] hidden: 128 } }
        data { format: IMAGES train: "/work/input/images/train" validation_fraction: 0.1 mean: 0.5 std: 0.25
               images { size: 32 min_area: 0.7 mirror: false center: 1 } }
        optimizer { type: ADAMW lr: 0.003 weight_decay: 0.01 } schedule { type: COSINE }"""
    )
    shutil.unpack_archive(bundle, work / "first")
    launcher = [*machine.launcher({"PATH": "/usr/bin"}), PYTHON]
    run = train("/work/old.pbtxt", "/work/old", program="/work/first/lockstep/lockstep", launcher=launcher)
    assert run.status == DONE, run
    assert checkpoints(work / "old") == [40]
    (work / "old").rename(work / "input/old")
    files = sorted((str(path), path.stat().st_mtime_ns) for path in (work / "input/old").rglob("*"))

    run = run_notebook(machine, BUNDLE="/work/input/unpacked/lockstep", OLD_RUN="/work/input/old")
    check_submissions(machine)
    assert "going on from /work/input/old/checkpoints/step-000000000040" in run.out, run
    assert events(work / "out/runs/images", "step")[0]["step"] > 40
    assert files == sorted((str(path), path.stat().st_mtime_ns) for path in (work / "input/old").rglob("*"))


def test_is_a_notebook():
    """As nbformat 4 has it, without outputs; and nothing leads elsewhere."""
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 4)
    for cell in NOTEBOOK["cells"]:
        assert set(cell) == ({"cell_type", "metadata", "source"} if cell["cell_type"] == "markdown" else
                             {"cell_type", "metadata", "source", "execution_count", "outputs"})
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert "http" not in "".join(cell["source"])


def test_its_pip_line_is_the_bundles(bundle, tmp_path):
    shutil.unpack_archive(bundle, tmp_path)
    manifest = json.loads((tmp_path / "lockstep/manifest.json").read_text())
    assert any(f"# !pip install {manifest['pip']}\n" in "".join(cell["source"]) + "\n" for cell in NOTEBOOK["cells"])
