"""Tests that runs, configs, models and data of an older program (tests/older_run, made by its make.py) give the same
bits with the current program: each run resumes, is evaluated and predicts, its config trains, and its data are prepared
again.

A difference means that a definition has changed. If the change was intended, tests/older_run/changed.json must have an
entry like this:

    {"run": "table", "act": "resume", "what": "the definition, in words", "line": "- the line of CHANGELOG.md"}

The results of this act must then really differ. The acts are resume, evaluate, predict, config, train and prepare.

Bits are compared if LibTorch computes here as on the machine that made the corpus (older_runs.py). Otherwise numbers
are compared within 1e-5, and a warning says so.
"""

import contextlib
import csv
import json
import os
import pathlib
import re
import shutil
import warnings

import numpy as np
import pytest

import older_runs
from harness import DONE, Run, events, sets
from older_runs import CLOSE, CORPUS, ORIGIN, PREPARED, RUNS, digest_of, tensors_of

RESUMED = [name for name, older in RUNS.items() if older.middle]
PREDICTED = [name for name, older in RUNS.items() if older.predict]
CHANGELOG = pathlib.Path(__file__).parents[1] / "CHANGELOG.md"
# The runs that every commit's tests evaluate: one for each task, and the run of folds.
EVALUATED = {"table", "tabm", "labels", "masks", "tokens", "folds"}


class RefusedError(Exception):
    """Reports the failure of a command that succeeded with the older program."""


class Bits:
    """Compares results with the older program's, and collects a line for each difference."""

    def __init__(self, name, native=False):
        self.name = name
        self.older = RUNS[name]
        self.folder = CORPUS / "runs" / name
        self.expected = json.loads((self.folder / "expected.json").read_text())
        self.exact = not native and older_runs.machine() == self.expected["machine"]
        self.differences = []
        if not self.exact and not native:
            warnings.warn(
                f"{name}: this machine computes otherwise than the one that made the corpus (fingerprint "
                f"{older_runs.machine()}, there {self.expected['machine']}): numbers are compared within {CLOSE}, "
                "not to the bit",
                stacklevel=2,
            )

    def differ(self, what, was, now):
        self.differences.append(f"{what}: {was} where the older program has it, {now} today")

    def compare(self, what, was, now, scale=None):
        """Compares two numbers, two texts, or placeholders for missing values."""
        if was == now:
            return
        if not self.exact and isinstance(was, float) and isinstance(now, float):
            if abs(was - now) <= CLOSE * (scale or max(abs(was), abs(now))):
                return
        self.differ(what, was, now)

    def compare_tensors(self, part, now):
        """Compares the last weights of a part (a fold, or the whole run) with those in the corpus."""
        if digest_of(now) == self.expected["weights"][part] or not (self.exact or self.older.weights):
            return
        if not self.older.weights:
            self.differ(f"weights of {part}", "other bits", "these")
            return
        was = tensors_of(self.folder / f"weights{'' if part == '.' else '-' + part}.safetensors")
        self.compare(f"tensors of {part}", [*was], [*now])
        for name in was.keys() & now.keys():
            before, after = was[name], now[name]
            if (before.dtype, before.shape) != (after.dtype, after.shape):
                self.differ(name, f"{before.dtype} {before.shape}", f"{after.dtype} {after.shape}")
            elif before.tobytes() != after.tobytes() and (self.exact or name not in self.older.rounding):
                away = np.abs(before.astype(float) - after).max()
                if self.exact or not away <= CLOSE * max(np.abs(before).max(), 1e-30):
                    self.differ(f"{part}: {name}", "other weights", f"up to {away:.3g} away")

    def compare_losses(self, run):
        """Compares the losses of all steps that the current program has made."""
        for part in self.older.parts():
            now = {str(event["step"]): event["loss"] for event in events(run / part, "step")}
            for step, loss in self.expected["losses"][part].items():
                self.compare(f"loss of step {step} of {part}", loss, now.get(step))
            self.compare(f"steps of {part}", len(self.expected["losses"][part]), len(now))

    def compare_training(self, run):
        self.compare_losses(run)
        for part in self.older.parts():
            self.compare_tensors(part, tensors_of(run / part / "weights.safetensors"))

    def compare_metrics(self, now):
        """Compares the corpus's metrics with those in `now`, which the current program's `evaluate --json` printed. The
        current program may print more metrics."""
        was, now = leaves(self.expected["evaluate"]), leaves(json.loads(now))
        for name, value in was.items():
            if isinstance(value, str):  # the path of the checkpoint, which was below ORIGIN
                value = value.removeprefix(f"{ORIGIN}/")
            self.compare(name, value, now.get(name, "not there"))

    def compare_tables(self, was, now):
        was, now = ([*csv.reader(path.open(newline=""))] for path in (was, now))
        self.compare("number of rows", len(was), len(now))
        for number, (before, after) in enumerate(zip(was, now)):
            self.compare(f"cells of row {number}", len(before), len(after))
            for cells in zip(before, after):
                fractions = [float(cell) if re.fullmatch(r"-?\d+\.\d+", cell) else cell for cell in cells]
                if fractions != [*cells] and not self.exact:  # a fraction, which is printed with six digits
                    self.compare(f"row {number}", *fractions, scale=max(1, abs(fractions[0])))
                else:
                    self.compare(f"row {number}", *cells)

    @contextlib.contextmanager
    def of(self, act):
        """Returns a context that fails at its end if there are differences without an entry in changed.json, or an
        entry without a difference."""
        try:
            yield
        except RefusedError as error:
            self.differ(act, "done", error)
        (changed,) = [entry for entry in changes() if (entry["run"], entry["act"]) == (self.name, act)] or [None]
        if changed is None:
            more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
            assert not self.differences, f"older run {self.name}, {act}: {self.differences[0]}{more}"
        else:
            assert self.differences or not self.exact, f"changed.json: {self.name}, {act}: nothing differs"


def leaves(value, name=""):
    """Returns the values in a JSON object as {path of field names and list indices: value}."""
    if not isinstance(value, (dict, list)):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = {}
    for key, inner in items:
        found |= leaves(inner, f"{name}.{key}".strip("."))
    return found


def changes():
    return json.loads((CORPUS / "changed.json").read_text())


def copied(name, folder, run=True):
    """Copies a run of the corpus, without its folder `run` if `run` is false, and the corpus's data into `folder`.
    Changes the paths in the run's configs accordingly, and returns the run's new folder."""
    shutil.copytree(CORPUS / "data", folder / "data", dirs_exist_ok=True)
    to = folder / "runs" / name
    left_out = shutil.ignore_patterns("weights*", "predictions*", "expected.json", *([] if run else ["run"]))
    shutil.copytree(CORPUS / "runs" / name, to, ignore=left_out)
    for path in (*to.glob("*.pbtxt"), *to.glob("run/**/config.pbtxt")):
        path.write_text(path.read_text().replace(ORIGIN, str(folder)))
    return to


def lockstep(folder, *words, ranks=1, native=False):
    environment = older_runs.environment(native)
    run = Run(words, cwd=folder, ranks=ranks, launcher=older_runs.launcher(ranks), env=environment)
    if run.status != DONE:
        raise RefusedError(f"status {run.status}: {(run.error_lines or [''])[-1]}")
    return run


def train(name, folder, config, native=False):
    older = RUNS[name]
    folds = ["--folds", older.folds] if older.folds else []
    run = folder / "runs" / name / "run"
    return run, lockstep(folder, "train", config, *folds, *sets(f"run_dir={run}"), ranks=older.ranks, native=native)


def goes_on(name, folder, bits, native=False):
    config = copied(name, folder) / "train.pbtxt"
    run, _ = train(name, folder, config, native)
    for part in RUNS[name].parts():
        assert [event["step"] for event in events(run / part, "resume")] == [RUNS[name].middle]
    bits.compare_training(run)


@pytest.mark.parametrize("name", RESUMED)
def test_it_goes_on(name, tmp_path):
    bits = Bits(name)
    with bits.of("resume"):
        goes_on(name, tmp_path, bits)


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.all_tier("it shows the comparison that only a machine of another kind needs")
def test_it_goes_on_with_this_processors_kernels(name, tmp_path):
    """Resumes with kernels for this processor. They sum in another order than the corpus's kernels, as on a machine of
    another kind."""
    bits = Bits(name, native=True)
    goes_on(name, tmp_path, bits, native=True)
    assert not bits.differences or any(entry["run"] == name for entry in changes()), bits.differences


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.all_tier(
    "the metrics of a task are the same code in each of its runs",
    unless=lambda name: name in EVALUATED,
)
def test_it_is_evaluated(name, tmp_path):
    bits = Bits(name)
    with bits.of("evaluate"):
        copied(name, tmp_path)
        bits.compare_metrics(lockstep(tmp_path, "evaluate", f"runs/{name}/run", "--json").out)


@pytest.mark.parametrize("name", PREDICTED)
def test_it_predicts(name, tmp_path):
    bits = Bits(name)
    with bits.of("predict"):
        copied(name, tmp_path)
        older = RUNS[name]
        lockstep(tmp_path, "predict", f"runs/{name}/run", *older.predict, "--output", older.output)
        was, now = bits.folder / older.output, tmp_path / older.output
        if older.output.endswith(".npy"):
            before, after = np.load(was), np.load(now)
            bits.compare("type and shape", (before.dtype, before.shape), (after.dtype, after.shape))
            if (share := np.mean(before != after)) > (0 if bits.exact else 0.01):
                bits.differ("classes", "other ones", f"a share of {share:.3g} differs")
        else:
            bits.compare_tables(was, now)


def test_metrics_of_an_older_run_keep_their_meaning(tmp_path):
    """Goes on with an older run of several labels whose config says accuracy, which was the share of right labels. It
    must keep its best checkpoint by label_accuracy and be ended by it, also when it is started for the second time; a
    run that begins today takes accuracy as it is defined today."""
    folder = copied("labels", tmp_path)
    run, config = folder / "run", folder / "train.pbtxt"
    fields = ["checkpoint.keep_best=accuracy", "early_stopping.metric=accuracy", "early_stopping.patience=9"]

    def trained(to, steps):
        done = lockstep(tmp_path, "train", config, *sets(f"run_dir={to}", f"max_steps={steps}", *fields))
        told = [line for line in done.err.splitlines() if "the run goes on with label_accuracy, as it began" in line]
        listed = lockstep(tmp_path, "checkpoints", to).out
        fields_now = fields_of((to / "config.pbtxt").read_text())
        metrics = {*fields_now["checkpoint.keep_best"], *fields_now["early_stopping.metric"]}
        (best,) = {name for name in ("best accuracy", "best label_accuracy") if name in listed}
        return len(told), metrics, best

    assert trained(run, 8) == (2, {'"label_accuracy"'}, "best label_accuracy")
    assert trained(run, 12) == (2, {'"label_accuracy"'}, "best label_accuracy")
    assert trained(folder / "today", 8) == (0, {'"accuracy"'}, "best accuracy")
    evaluations = events(run, "eval")
    assert {"val_accuracy", "val_label_accuracy"} <= evaluations[-1].keys()
    listed = older_runs.listed(lockstep(tmp_path, "runs", folder, "--json").out)
    best = {name: of["best_metric"] for name, of in listed.items()}
    assert best == {"run": "val_label_accuracy", "today": "val_accuracy"}


def fields_of(text):
    """Returns {path of a field, such as "data.csv.label": the field's values} of a printed config."""
    fields, within = {}, []
    for line in text.splitlines():
        line = line.strip()
        if line.endswith("{"):
            within.append(line.removesuffix("{").strip())
        elif line == "}":
            within.pop()
        elif line and not line.startswith("#"):
            name, value = line.split(": ", 1)
            fields.setdefault(".".join([*within, name]), []).append(value)
    return fields


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.all_tier("one config has the fields that all have", unless=lambda name: name in ("table", "masks"))
def test_its_config_has_the_same_fields(name, tmp_path):
    """Checks that the current program has each field of the older program's printed config, with the same default. New
    fields are allowed."""
    bits = Bits(name)
    with bits.of("config"):
        folder = copied(name, tmp_path, run=False)
        was = fields_of((folder / "printed.pbtxt").read_text())
        now = fields_of(lockstep(folder, "config", "train.pbtxt").out)
        for field, values in was.items():
            bits.compare(field, values, now.get(field, "not there"))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.all_tier(
    "a run that goes on has all of its training but the first weights and steps",
    unless=lambda name: name in ("table", "masks"),
)
def test_its_printed_config_trains(name, tmp_path):
    """Checks that the config that the older program printed trains from the beginning, and ends with the same result.
    """
    bits = Bits(name)
    with bits.of("train"):
        config = copied(name, tmp_path, run=False) / "printed.pbtxt"
        run, _ = train(name, tmp_path, config)
        bits.compare_training(run)
        if not RUNS[name].middle:
            bits.compare_metrics(lockstep(tmp_path, "evaluate", run, "--json").out)


@pytest.mark.parametrize("name", PREPARED)
def test_its_data_are_prepared_again(name, tmp_path):
    shutil.copytree(CORPUS / "data", tmp_path / "data", ignore=shutil.ignore_patterns(name))
    lockstep(tmp_path, "prepare", *PREPARED[name])
    was, now = (contents(folder / "data" / name) for folder in (CORPUS, tmp_path))
    different = sorted(path for path in was.keys() | now.keys() if was.get(path) != now.get(path))
    listed = any((entry["run"], entry["act"]) == (name, "prepare") for entry in changes())
    assert bool(different) == listed, f"prepare {PREPARED[name][0]}: {different} differ"


def contents(folder):
    """Returns the files below a folder as {path: bytes}."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_they_are_listed_and_compared(tmp_path):
    names = [name for name in RESUMED if not RUNS[name].folds]
    for name in names:
        shutil.copytree(CORPUS / "runs" / name / "run", tmp_path / "runs" / name)
    told = older_runs.listed(lockstep(tmp_path, "runs", "runs", "--json").out)
    assert told.keys() == set(names)
    for name in names:
        expected = json.loads((CORPUS / "runs" / name / "expected.json").read_text())["runs"]["run"]
        assert {key: told[name].get(key) for key in expected} == expected, name
    run = lockstep(tmp_path, "compare", *(f"runs/{name}" for name in names), "--json")
    compared = json.loads(run.out)
    assert [pathlib.Path(line["run"]).name for line in compared["runs"]] == names
    assert [line["step"] for line in compared["runs"]] == [RUNS[name].middle for name in names]


def test_the_corpus_has_these_runs():
    assert sorted(os.listdir(CORPUS / "runs")) == sorted(RUNS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1_500_000


def test_each_change_stands_in_the_changelog():
    lines = {line.strip() for line in CHANGELOG.read_text().splitlines()}
    acts = {"resume", "evaluate", "predict", "config", "train", "prepare"}
    for entry in changes():
        assert entry.keys() == {"run", "act", "what", "line"} and entry["what"], entry
        assert entry["act"] in acts and entry["run"] in {*RUNS, *PREPARED}, entry
        assert entry["line"].strip() in lines, f"CHANGELOG.md has no line {entry['line']!r}"
