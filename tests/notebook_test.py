"""Runs the notebooks of examples/kaggle, cell by cell, on a simulated machine with nothing but Python, the torch wheel,
timm and pandas. As on Kaggle, the notebooks read from /kaggle/input, which is read-only, and write to /kaggle/working.
"""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from bare_machine import PYTHON, SITE, BareMachine, why_there_is_none
from harness import DIGITS, DONE, Run, events, rows_of, sets, write_table

needs_mounts = pytest.mark.skipif(why_there_is_none() is not None, reason=str(why_there_is_none()))

NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path("examples/kaggle").glob("*.ipynb"))}

# This program runs a notebook's cells as Jupyter does, but ends if a command of a cell fails.
RUN_CELLS = r"""
import json, os, re, subprocess, sys

def shell(line):
    line = re.sub(r"\{(\w+)\}", lambda name: str(globals()[name[1]]), line)
    print("$ " + line, flush=True)
    status = subprocess.call(["/bin/bash", "-c", line])
    if status:
        sys.exit(f"status {status}")

os.chdir("/kaggle/working")
with open(sys.argv[1]) as file:
    cells = json.load(file)["cells"]
for cell in cells:
    if cell["cell_type"] == "code":
        lines = "".join(cell["source"]).split("\n")
        exec("\n".join(f"shell({line[1:]!r})" if line.startswith("!") else line for line in lines), globals())
        sys.stdout.flush()
"""

TRAINED = 1437  # number of digits to train on; the others are to be predicted
IMAGES = 600  # number of digits that are written as images to train on


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    assert Run(["bundle", "--wheel", folder]).status == DONE
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def machine(wheel, tmp_path):
    """Returns a machine with the wheel in /kaggle/input/lockstep, and two competitions: the digits as a table and as
    images."""
    machine = BareMachine(tmp_path / "root", torch=False)
    machine.copy_libraries_of_python()
    machine.mount(SITE, "/opt/site", read_only=True)
    packages = machine.root / machine.packages.lstrip("/")
    packages.mkdir(parents=True)
    (packages / "site.pth").write_text("/opt/site\n")
    folder = machine.root / "kaggle/input"
    (machine.root / "kaggle/working").mkdir(parents=True)
    (folder / "lockstep").mkdir(parents=True)
    shutil.copy(wheel, folder / "lockstep")
    rows = np.loadtxt(DIGITS, delimiter=",", dtype=np.uint8)
    np.random.default_rng(0).shuffle(rows)
    table, images = folder / "titanic", folder / "images"
    table.mkdir()
    names = [f"pixel{i}" for i in range(64)]
    pixels, labels = rows[:, :64].tolist(), rows[:, 64].tolist()
    write_table(table / "train.csv", ([i, *pixels[i], labels[i]] for i in range(TRAINED)), ["id", *names, "digit"])
    write_table(table / "test.csv", ([i, *pixels[i]] for i in range(TRAINED, len(rows))), ["id", *names])
    for i, row in enumerate(rows):
        if IMAGES <= i < TRAINED:
            continue
        place = images / (f"train/{labels[i]}" if i < TRAINED else "test")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((row[:64].reshape(8, 8) * 15).repeat(3, 0).repeat(3, 1)).save(place / f"{i:04}.png")
    # The sample submissions list the digits in a shuffled order.
    order = np.random.default_rng(1).permutation(range(TRAINED, len(rows)))
    write_table(table / "sample_submission.csv", ([i, 0] for i in order), ["id", "digit"])
    write_table(images / "sample_submission.csv", ([f"{i:04}.png", 0] for i in order), ["image", "label"])
    machine.labels = [str(labels[i]) for i in order]
    (machine.root / "work/run_cells.py").write_text(RUN_CELLS)
    machine.mount(folder, "/kaggle/input", read_only=True)
    return machine


def with_settings(name, settings):
    """Returns the notebook's text with other values for variables that its first code cell sets."""
    notebook = json.loads(json.dumps(NOTEBOOKS[name]))
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    text = "".join(cell["source"])
    for setting, value in settings.items():
        text, count = re.subn(rf"(?m)^{setting} = .*$", f"{setting} = {value!r}", text)
        assert count == 1, setting
    cell["source"] = text.splitlines(keepends=True)
    return json.dumps(notebook)


def run_notebook(machine, name, **settings):
    (machine.root / f"work/{name}.ipynb").write_text(with_settings(name, settings))
    # PIP_BREAK_SYSTEM_PACKAGES lets pip install into Debian's Python, and torch needs a user name.
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "USER": "root", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    words = ["/work/run_cells.py", f"/work/{name}.ipynb"]
    run = Run(words, program=PYTHON, launcher=machine.launcher(variables), timeout=600)
    assert run.status == DONE, run
    return run


def check_submission(machine, competition, least):
    """Checks that the submission has the sample's header, ids and order, and that at least the share `least` of its
    labels is right."""
    sent = rows_of(machine.root / "kaggle/working/submission.csv")
    sample = rows_of(machine.root / f"kaggle/input/{competition}/sample_submission.csv")
    (identity, label), *_ = {tuple(row) for row in sample}
    assert [list(row) for row in sent] == [[identity, label]] * len(sample)
    assert [row[identity] for row in sent] == [row[identity] for row in sample]
    right = np.mean([row[label] == expected for row, expected in zip(sent, machine.labels)])
    assert right > least, right


def fields(**assignments):
    """Returns the text of the notebooks' variable FIELDS, which sets these fields of the config."""
    return " ".join(sets(*(f"{name.replace('__', '.')}={value}" for name, value in assignments.items())))


@needs_mounts
def test_table(machine):
    run = run_notebook(machine, "table")
    check_submission(machine, "titanic", least=0.93)
    working = machine.root / "kaggle/working"
    assert "0 fail" in run.out and 'ignore: "id"' in run.out, run
    assert len(rows_of(working / "runs/train/held_back.csv")) == TRAINED
    assert all(events(working / f"runs/train/fold-{fold}", "done") for fold in range(5))


@needs_mounts
@pytest.mark.all_tier("images_test and resume_test cover what this notebook does")
def test_images(machine):
    """Runs the notebook in two sessions. The second session has the output of the first one as an input."""
    run_notebook(machine, "images", FIELDS=fields(epochs=2, schedule__warmup_steps=20))
    check_submission(machine, "images", least=0.5)
    working, old = machine.root / "kaggle/working", machine.root / "kaggle/input/first/runs"
    old.parent.mkdir()
    (working / "runs").rename(old)
    for path in working.iterdir():
        path.unlink()
    files = sorted((str(path), path.stat().st_mtime_ns) for path in old.rglob("*"))
    steps = events(old / "images", "step")[-1]["step"]

    more = fields(epochs=4, schedule__warmup_steps=20)
    run = run_notebook(machine, "images", FIELDS=more, OLD_RUN="/kaggle/input/first/runs/images")
    check_submission(machine, "images", least=0.8)
    assert f"going on from /kaggle/input/first/runs/images/checkpoints/step-{steps:012}" in run.out, run
    assert events(working / "runs/images", "step")[0]["step"] > steps
    assert files == sorted((str(path), path.stat().st_mtime_ns) for path in old.rglob("*"))


@needs_mounts
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.all_tier("imported_test covers what this notebook does")
def test_timm(machine, weights):
    """Runs the notebook with attached weights for 1,000 classes, and without weights. The model is smaller than the
    notebook's."""
    import safetensors.torch
    import timm

    place = machine.root / "kaggle/input/resnet10t"
    place.mkdir()
    if weights:
        safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), place / "model.safetensors")
    few = fields(
        epochs=3,
        global_batch=16,
        optimizer__lr=0.002,
        schedule__warmup_steps=5,
        data__images__min_area=0.8,
        data__images__mirror="false",
    )
    named = "/kaggle/input/resnet10t/model.safetensors"
    run = run_notebook(machine, "timm", MODEL="resnet10t", SIZE=32, WEIGHTS=named, FIELDS=few)
    check_submission(machine, "images", least=0.8)
    assert (f"not from {named}: fc." in run.out) == weights, run


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_is_a_notebook(name):
    """Checks that the notebook follows nbformat 4 and has no outputs and no links, and that all notebooks have the same
    set-up cell."""
    notebook = NOTEBOOKS[name]
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    for cell in notebook["cells"]:
        assert set(cell) == ({"cell_type", "metadata", "source"} if cell["cell_type"] == "markdown" else
                             {"cell_type", "metadata", "source", "execution_count", "outputs"})
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert "http" not in "".join(cell["source"])
    set_up = [notebook["cells"][2]["source"] for notebook in NOTEBOOKS.values()]
    assert sorted(NOTEBOOKS) == ["images", "table", "timm"] and set_up == [set_up[0]] * 3
