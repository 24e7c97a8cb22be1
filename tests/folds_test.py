"""Tests cross-validation: how samples are divided into folds, and what `train --folds` and the commands that take a run
of folds do. A cross-validation that is stopped or killed and then resumed must have the same result, bit for bit."""

import collections
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import struct

import numpy as np
import pytest

from harness import (
    DONE,
    INTERRUPTED,
    STOPPED,
    USAGE,
    Run,
    Started,
    expect_error,
    processes_of,
    rows_of,
    skip_without_gpus,
    train,
    wait_until,
    write_config,
    write_table,
)
from labelled_images import CLASSES as LABELS
from labelled_images import photograph, write_images_config

COUNT, ROWS = 3, 150
CLASSES = ["a", "b", "rare"]
KILLS = 20 if os.environ.get("LOCKSTEP_TIER") == "all" else 3


def config_text(folds="", more="", label='label: "y" label_names: true', epochs=8):
    return f"""epochs: {epochs} global_batch: 16 deterministic: true {more} optimizer {{ type: ADAMW lr: 0.02 }}
        data {{ train: "train.csv" csv {{ header: true {label} ignore: "id" ignore: "house" scaling: STANDARD }} {folds} }}
        model {{ name: "mlp" mlp {{ hidden: [8] dropout: 0.1 }} }}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with train.csv, test.csv, config.pbtxt, and a finished cross-validation of train.csv in cv."""
    path = tmp_path_factory.mktemp("folds")
    draw = np.random.default_rng(1)
    x = draw.normal(size=(ROWS, 3))
    kinds = np.digitize(x[:, 0] + 0.5 * draw.normal(size=ROWS), [0.2, 1.5])
    houses = draw.integers(0, 11, ROWS)
    rows = [[f"s{i}", *(f"{v:.5f}" for v in row), f"h{h}", CLASSES[k]] for i, (row, h, k) in enumerate(zip(x, houses, kinds))]
    write_table(path / "train.csv", rows, ["id", "u", "v", "w", "house", "y"])
    write_table(path / "test.csv", [row[:-1] for row in rows[:40]], ["id", "u", "v", "w", "house"])
    write_config(path, config_text('validation_fraction: 0.2'))
    run = cross_validation(path, "cv")
    assert run.status == DONE, run
    return path


def cross_validation(folder, name, *words, config="config.pbtxt", **options):
    words = ["train", config, "--folds", str(COUNT), "--set", f"run_dir={name}", *words]
    return Run(words, cwd=folder, **options)


def held_back(folder, run, *words, **options):
    output = folder / "held_back.csv"
    done = Run(["predict", run, "--held-back", "--output", output, *words], cwd=folder, **options)
    assert done.status == DONE, done
    return rows_of(output)


def truths(folder):
    return [row["y"] for row in rows_of(folder / "train.csv")]


def test_each_sample_is_predicted_by_the_fold_that_held_it_back(folder):
    rows = rows_of(folder / "cv/held_back.csv")
    assert list(rows[0]) == ["index", "fold", "label", *CLASSES]
    assert [int(row["index"]) for row in rows] == list(range(ROWS))
    folds = np.array([int(row["fold"]) for row in rows])
    truth = np.array(truths(folder))
    for kind in CLASSES:
        of_kind = [np.sum((folds == fold) & (truth == kind)) for fold in range(COUNT)]
        assert max(of_kind) - min(of_kind) <= 1, of_kind
    for fold in range(COUNT):
        alone = held_back(folder, f"cv/fold-{fold}", "--probabilities")
        expected = [{name: text for name, text in row.items() if name != "fold"} for row in rows if row["fold"] == str(fold)]
        assert alone == expected


def test_metrics_are_the_mean_over_folds(folder):
    run = Run(["evaluate", "cv", "--json"], cwd=folder)
    line = json.loads(run.out)
    rows, truth = rows_of(folder / "cv/held_back.csv"), truths(folder)
    accuracies, losses = [], []
    for fold in range(COUNT):
        of_fold = [i for i, row in enumerate(rows) if row["fold"] == str(fold)]
        accuracies.append(np.mean([truth[i] == rows[i]["label"] for i in of_fold]))
        losses.append(-np.mean([np.log(float(rows[i][truth[i]])) for i in of_fold]))
        assert line["folds"][fold]["samples"] == len(of_fold)
        assert line["folds"][fold]["accuracy"] == pytest.approx(accuracies[-1])
    assert line["samples"] == ROWS
    assert line["accuracy"] == pytest.approx(np.mean(accuracies))
    assert line["deviations"]["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert line["loss"] == pytest.approx(np.mean(losses), abs=1e-3)
    text = Run(["evaluate", "cv"], cwd=folder).out.splitlines()
    assert text[0].startswith("fold 0: loss ") and text[COUNT] == f"mean of {COUNT} folds ({ROWS} samples):"
    assert ["accuracy", f"{np.mean(accuracies):.4f}", "±", f"{np.std(accuracies, ddof=1):.4f}"] in [line.split() for line in text]


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        pytest.param(2, marks=pytest.mark.all_tier("ranks predict as in predict_test")),
    ],
)
def test_files_are_predicted_by_the_mean_of_the_folds(ranks, folder):
    skip_without_gpus(ranks)

    def shares_of(run):
        words = ["predict", run, "--input", "test.csv", "--output", "test_shares.csv", "--probabilities"]
        done = Run(words, ranks=ranks, cwd=folder)
        assert done.status == DONE, done
        rows = rows_of(folder / "test_shares.csv")
        return np.array([[float(row[name]) for name in CLASSES] for row in rows]), [row["label"] for row in rows]

    together, labels = shares_of("cv")
    mean = np.mean([shares_of(f"cv/fold-{fold}")[0] for fold in range(COUNT)], axis=0)
    np.testing.assert_allclose(together, mean, atol=2e-6)
    assert labels == [CLASSES[k] for k in together.argmax(1)]
    done = Run(["predict", "cv", "--input", "test.csv", "--output", "usual.csv"], ranks=ranks, cwd=folder)
    assert f"weights of {COUNT} folds" in done.out + done.err
    assert [row["label"] for row in rows_of(folder / "usual.csv")] == labels


def test_groups_stay_together(folder):
    write_config(folder, config_text('folds { by: GROUP group: "house" }', epochs=1), "group.pbtxt")
    assert cross_validation(folder, "group", config="group.pbtxt").status == DONE
    rows = held_back(folder, "group", "--keep", "house", "--id", "id")
    assert list(rows[0])[:3] == ["id", "fold", "house"] and len(rows) == ROWS
    folds_of = {}
    for row in rows:
        folds_of.setdefault(row["house"], set()).add(row["fold"])
    assert all(len(folds) == 1 for folds in folds_of.values()), folds_of
    assert len(set.union(*folds_of.values())) == COUNT


@pytest.mark.all_tier("a unit test divides samples by time")
def test_the_past_predicts_the_future(folder):
    write_config(folder, config_text("folds { by: TIME }", epochs=1), "time.pbtxt")
    assert cross_validation(folder, "time", config="time.pbtxt").status == DONE
    found = {int(row["index"]): int(row["fold"]) for row in held_back(folder, "time")}
    part = ROWS // (COUNT + 1)
    begin = ROWS - COUNT * part  # first held-back sample in scikit-learn's TimeSeriesSplit
    assert found == {sample: (sample - begin) // part for sample in range(begin, ROWS)}


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        pytest.param(2, marks=pytest.mark.all_tier("ranks predict as in predict_test")),
    ],
)
def test_numbers_have_a_mean_too(ranks, folder):
    skip_without_gpus(ranks)
    name = f"numbers-{ranks}"
    draw = np.random.default_rng(2)
    np.save(folder / "x.npy", draw.normal(size=(50, 3)).astype(np.float32))
    np.save(folder / "y.npy", draw.normal(size=(50, 1)).astype(np.float32))
    write_config(
        folder,
        """epochs: 2 global_batch: 8 data { format: NPY task: REGRESSION train: "x.npy" train: "y.npy" }
        model { name: "mlp" mlp { hidden: [4] } }""",
        "numbers.pbtxt",
    )
    assert cross_validation(folder, name, config="numbers.pbtxt", ranks=ranks).status == DONE

    def values_of(run):
        assert Run(["predict", run, "--input", "x.npy", "--output", "v.npy"], cwd=folder).status == DONE
        return np.load(folder / "v.npy")

    mean = np.mean([values_of(f"{name}/fold-{fold}") for fold in range(COUNT)], axis=0)
    np.testing.assert_allclose(values_of(name), mean, rtol=1e-5)
    assert len(rows_of(folder / f"{name}/held_back.csv")) == 50


def test_folds_that_are_done_are_not_trained_again(folder):
    before = (folder / "cv/held_back.csv").read_bytes()
    logs = [(folder / f"cv/fold-{fold}/log.jsonl").read_bytes() for fold in range(COUNT)]
    assert cross_validation(folder, "cv").status == DONE
    assert (folder / "cv/held_back.csv").read_bytes() == before
    for fold, log in enumerate(logs):
        after = (folder / f"cv/fold-{fold}/log.jsonl").read_bytes()
        assert after.startswith(log) and b'"event":"step"' not in after[len(log) :].replace(b" ", b"")


LONG = dict(more="checkpoint { every_steps: 5 } log { every_steps: 1 }", epochs=60)


@pytest.fixture(scope="module")
def undisturbed(folder):
    write_config(folder, config_text(**LONG), "long.pbtxt")
    run = cross_validation(folder, "undisturbed", config="long.pbtxt")
    assert run.status == DONE, run
    return (folder / "undisturbed/held_back.csv").read_bytes()


def started(folder, name):
    words = ["--folds", str(COUNT), "--side-by-side", "2"]
    return Started("long.pbtxt", folder / name, words=words, cwd=folder)


def steps_logged(folder, name):
    logs = pathlib.Path(folder / name).glob("fold-*/log.jsonl")
    return sum(log.read_text().count('"event":"step"') for log in logs)


def test_folds_that_are_killed(folder, undisturbed):
    """Kills all processes of a cross-validation at once, KILLS times, each time after a different number of steps, and
    checks that its result has the bits of an undisturbed one."""
    draw = random.Random(5)
    for _ in range(KILLS):
        aim = steps_logged(folder, "killed") + draw.randrange(1, 60)
        with started(folder, "killed") as job:
            job.wait_until(lambda: steps_logged(folder, "killed") >= aim)
            for pid in [job.process.pid, *job.children()]:
                os.kill(pid, signal.SIGKILL)
            job.process.wait()
        wait_until(lambda: not processes_of(folder / "killed"))
    run = cross_validation(folder, "killed", config="long.pbtxt")
    assert run.status == DONE, run
    assert (folder / "killed/held_back.csv").read_bytes() == undisturbed


def test_a_signal_stops_all_folds(folder, undisturbed):
    with started(folder, "stopped") as job:
        job.wait_until(lambda: steps_logged(folder, "stopped") > 0)
        job.process.send_signal(signal.SIGINT)
        assert job.process.wait(60) == INTERRUPTED
    assert not processes_of(folder / "stopped")
    assert "stopping: the folds save their state" in job.texts()[0]
    run = cross_validation(folder, "stopped", config="long.pbtxt")
    assert run.status == DONE, run
    assert (folder / "stopped/held_back.csv").read_bytes() == undisturbed


def listed(folder, name):
    """Returns the object that `lockstep runs --json` prints for the run `name` in `folder`, and checks that it does not
    list the folds of a cross-validation beside it."""
    lines = [json.loads(line) for line in Run(["runs", ".", "--json"], cwd=folder).out.splitlines()]
    assert not [line["run"] for line in lines if "fold-" in line["run"]]
    (line,) = [line for line in lines if line["run"] == name]
    return line


def fold_rows(folder, name):
    """Returns the rows for the folds in the text of `lockstep watch`, as lists of words."""
    text = Run(["watch", name], cwd=folder).out
    return [line.split() for line in text[text.index("\nfold ") :].splitlines()[2:]]


def endless(folder, name):
    """Starts a cross-validation that does not end, two folds of which train at a time."""
    write_config(folder, config_text(**LONG), "long.pbtxt")
    words = ["--folds", str(COUNT), "--side-by-side", "2", "--set", "epochs=100000"]
    return Started("long.pbtxt", folder / name, words=words, cwd=folder)


def logged(folder, name, event):
    """Returns whether the first two folds have such an event in their logs."""
    logs = [folder / name / f"fold-{fold}/log.jsonl" for fold in (0, 1)]
    return all(log.exists() and f'"event":"{event}"' in log.read_text() for log in logs)


@pytest.mark.parametrize("way", ["stop", "STOP"])
@pytest.mark.all_tier("a unit test has the file STOP, and the test below asks with the command")
def test_a_request_to_stop_stops_all_folds(way, folder):
    name = f"asked-{way}"
    with endless(folder, name) as job:
        job.wait_until(lambda: logged(folder, name, "step"))
        if way == "stop":
            asked = Run(["stop", name], cwd=folder)
            assert asked.status == DONE, asked
            saved = asked.out.splitlines()
            assert [path.split("/")[1] for path in saved] == ["fold-0", "fold-1"]
            assert all((folder / path).is_dir() for path in saved)
        else:
            (folder / name / "STOP").touch()
        assert job.process.wait(60) == INTERRUPTED
    assert not (folder / name / "STOP").exists() and not processes_of(folder / name)
    assert listed(folder, name)["state"] == "stopped"
    assert [row[1] for row in fold_rows(folder, name)] == ["stopped", "stopped", "waiting"]
    with endless(folder, name) as again:
        again.wait_until(lambda: logged(folder, name, "resume"))
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(60) == STOPPED


def test_what_a_cross_validation_does_while_it_trains(folder):
    with endless(folder, "trains") as job:
        job.wait_until(lambda: logged(folder, "trains", "eval"))
        line = listed(folder, "trains")
        assert line["state"] == "training" and line["folds"] == COUNT and line["best_metric"] == "val_loss", line
        assert [row[1] for row in fold_rows(folder, "trains")] == ["training", "training", "waiting"]
        asked = Run(["checkpoint", "trains"], cwd=folder)
        assert asked.status == DONE and [path.split("/")[1] for path in asked.out.splitlines()] == ["fold-0", "fold-1"], asked
        report = Run(["report", "trains", "--output", "report.html"], cwd=folder)
        assert report.status == DONE and f"{COUNT} runs" in report.out, report
        assert re.findall('"state":"([^"]*)"', (folder / "report.html").read_text()) == ["training", "training", "waiting"]
        compared = json.loads(Run(["compare", "trains", "cv", "--json"], cwd=folder).out)
        assert [run["folds"] for run in compared["runs"]] == [COUNT, COUNT]
        assert job.process.poll() is None
        assert Run(["stop", "trains"], cwd=folder).status == DONE
        assert job.process.wait(60) == INTERRUPTED
    assert not (folder / "trains/STOP").exists() and not processes_of(folder / "trains")
    assert listed(folder, "trains")["state"] == "stopped"
    assert [row[1] for row in fold_rows(folder, "trains")] == ["stopped", "stopped", "waiting"]
    for command in ("stop", "checkpoint"):
        expect_error(Run([command, "trains"], cwd=folder), USAGE, "trains: no job trains in it now")


def best_losses(folder, name):
    """Returns the least validation loss of each fold, from the folds' logs."""
    logs = [(folder / name / f"fold-{fold}/log.jsonl").read_text().splitlines() for fold in range(COUNT)]
    evaluations = [[line for line in map(json.loads, log) if line["event"] == "eval"] for log in logs]
    return [min(line["val_loss"] for line in lines) for lines in evaluations]


def test_what_became_of_a_cross_validation(folder):
    """Checks the means and deviations that `runs`, `watch` and `compare` print, and that a report shows each fold."""
    best = best_losses(folder, "cv")
    mean, deviation = np.mean(best), np.std(best, ddof=1)
    line = listed(folder, "cv")
    assert line["state"] == "done" and line["best_metric"] == "val_loss" and line["step"] == line["steps"]
    assert line["best"] == pytest.approx(mean) and line["best_deviation"] == pytest.approx(deviation)
    assert f"val_loss {mean:.4g} ± {deviation:.2g} of {COUNT}" in Run(["runs", "."], cwd=folder).out
    assert f"val_loss {mean:.4g} ± {deviation:.2g}, the mean of {COUNT} folds" in Run(["watch", "cv"], cwd=folder).out
    assert [row[:2] for row in fold_rows(folder, "cv")] == [[str(fold), "done"] for fold in range(COUNT)]
    runs = [json.loads(line)["run"] for line in Run(["runs", "cv", "--json"], cwd=folder).out.splitlines()]
    assert runs == ["cv", *(f"cv/fold-{fold}" for fold in range(COUNT))]
    compared = json.loads(Run(["compare", "cv", "cv/fold-1", "--json"], cwd=folder).out)
    losses = compared["metrics"]["val_loss"]
    assert losses["best"] == pytest.approx([mean, best[1]]) and losses["best_deviation"] == [pytest.approx(deviation), None]
    assert compared["config"] == {}
    assert f"{mean:.4g} ± {deviation:.2g}" in Run(["compare", "cv", "cv/fold-1"], cwd=folder).out
    assert f"{COUNT} runs" in Run(["report", "cv", "--output", "cv.html"], cwd=folder).out
    for command in ("checkpoints", "verify"):
        run = Run([command, "cv"], cwd=folder)
        assert run.status == DONE and all(f"fold{mark}{fold}" in run.out for fold in range(COUNT) for mark in (" " if command == "checkpoints" else "-")), run


@pytest.mark.parametrize(
    "words",
    [
        ["profile", "cv"],
        ["flight", "cv"],
        ["export", "cv", "--output", "cv.safetensors"],
        ["average", "cv@best", "cv/fold-0", "--output", "cv.safetensors"],
        ["train", "config.pbtxt", "--from", "cv@last", "--set", "run_dir=from"],
    ],
)
def test_what_needs_one_run_names_a_fold(words, folder):
    expect_error(Run(words, cwd=folder), USAGE, "cv: holds the folds of a cross-validation: name one", "cv/fold-0")


def test_a_fold_that_fails(folder):
    run = cross_validation(folder, "fails", "--set", "optimizer.lr=1e30", "--set", "optimizer.type=SGD")
    expect_error(run, USAGE, "fold ", "the loss is")
    assert not processes_of(folder / "fails")
    line = listed(folder, "fails")
    assert line["state"] == "failed" and line["why"].startswith("fold ") and "the loss is" in line["why"], line


def states(folder, name):
    """Returns the jobs in crew.json as {name: job}."""
    return {job["name"]: job for job in json.loads((folder / name / "crew.json").read_text())["jobs"]}


def test_what_became_of_each_fold_is_in_a_file(folder):
    jobs = states(folder, "cv")
    assert list(jobs) == ["fold-0", "fold-1", "fold-2", "evaluate", "predict"]
    for job in jobs.values():
        assert job["state"] == "done" and job["status"] == 0 and job["begin"] <= job["end"], jobs


def test_folds_have_one_owner(folder):
    words = ["--folds", str(COUNT), "--side-by-side", "2", "--set", "epochs=100000"]
    with Started("long.pbtxt", folder / "owned", words=words, cwd=folder) as job:
        job.wait_until(lambda: steps_logged(folder, "owned") > 0)
        assert states(folder, "owned")["fold-0"]["state"] == "running"
        assert states(folder, "owned")["fold-2"]["state"] == "waiting"
        expect_error(cross_validation(folder, "owned", config="long.pbtxt"), USAGE, "owned: another command runs its jobs in it")
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(60) == STOPPED
    assert [job["state"] for job in states(folder, "owned").values()] == ["stopped", "stopped", "waiting"]


IN_OPEN = 0x20
IN_CLOSE_NOWRITE = 0x10


class Opened:
    """Counts how often each file in a folder is opened. The kernel merges equal events that directly follow each other.
    Therefore this class also asks for the events of closing a file, which then lie between two openings of a file."""

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.events = self.libc.inotify_init1(os.O_NONBLOCK)
        assert self.libc.inotify_add_watch(self.events, os.fsencode(folder), IN_OPEN | IN_CLOSE_NOWRITE) > 0

    def counts(self):
        """Returns {file name: number of times that the file was opened since the last call}."""
        counts = collections.Counter()
        while True:
            try:
                data = os.read(self.events, 1 << 20)
            except BlockingIOError:
                return counts
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                name, data = data[16 : 16 + length].rstrip(b"\0"), data[16 + length :]
                if name and mask & IN_OPEN:
                    counts[name.decode()] += 1


def test_each_image_is_read_once_for_all_folds(tmp_path):
    """Checks that the prediction of all folds opens each image as often as the prediction of a single fold. The
    prediction of all folds must be the mean of the single folds' predictions, up to the rounding of float32."""
    random = np.random.default_rng(4)
    for label, name in enumerate(LABELS):
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(9):
            photograph(random, label, 24).save(tmp_path / "train" / name / f"{i}.png")
    (tmp_path / "new").mkdir()
    for i in range(11):
        photograph(random, i % 3, 30).save(tmp_path / f"new/{i:02}.png")
    config = write_images_config(tmp_path, 'train: "train"', epochs=1)
    # Without loader threads an image is opened only when the model needs its batch. A loader thread
    # would read ahead, past the last batch, so the number of openings would depend on its speed.
    config.write_text(config.read_text() + "\nloader { threads: 0 }")
    run = cross_validation(tmp_path, "cv", config=config)
    assert run.status == DONE, run
    opened = Opened(tmp_path / "new")

    def predicted(name):
        opened.counts()
        done = Run(["predict", name, "--input", "new", "--output", "values.npy"], cwd=tmp_path)
        assert done.status == DONE, done
        return np.load(tmp_path / "values.npy"), opened.counts()

    alone, times = zip(*(predicted(f"cv/fold-{fold}") for fold in range(COUNT)))
    together, times_together = predicted("cv")
    assert len(times_together) == 11 and min(times_together.values()) > 0
    assert times_together == times[-1]
    # The prediction of a single fold is written as float32, so the mean of such predictions agrees only to that
    # precision.
    np.testing.assert_allclose(together, np.mean(np.array(alone, dtype=np.float64), axis=0), rtol=1e-6)
    # If the folds differ in their settings for reading, they predict one after the other; here one fold has a smaller
    # batch. The result has the same bits as the result of the folds that predicted together, but each image is opened
    # more than twice as often.
    path = tmp_path / "cv/fold-2/config.pbtxt"
    path.write_text(path.read_text().replace("global_batch: 16", "global_batch: 15"))
    apart, times_apart = predicted("cv")
    assert all(times_apart[name] > 2 * count for name, count in times_together.items()), (times_apart, times_together)
    np.testing.assert_array_equal(apart, together)


def test_a_folder_with_a_run(folder):
    assert train("config.pbtxt", folder / "single", "--set", "epochs=1", cwd=folder).status == DONE
    expect_error(cross_validation(folder, "single"), USAGE, "single: holds a run", "run_dir")


def test_folds_that_are_missing(folder):
    words = ["train", "config.pbtxt", "--set", "data.validation_fraction=0", "--set", "data.folds.count=3"]
    assert Run([*words, "--set", "run_dir=part/fold-0", "--set", "epochs=1"], cwd=folder).status == DONE
    run = Run(["predict", "part", "--input", "test.csv"], cwd=folder)
    expect_error(run, USAGE, "part: fold 1 of 3 has not been trained", "--folds 3")


@pytest.mark.parametrize(
    "words, parts",
    [
        (["--folds", "1"], ["--folds", "2"]),
        (["--side-by-side", "2"], ["--side-by-side", "--folds"]),
        (["--set", "data.folds.count=1", "--set", "data.validation_fraction=0"], ["data.folds.count", "others to train on"]),
        (["--set", "data.folds.count=3"], ["data.folds.count", "validation_fraction is given too"]),
        (["--folds", "3", "--set", "data.validation=train.csv"], ["data.folds.count", "validation is given too"]),
        (["--folds", "3", "--set", "data.folds.by=GROUP"], ["data.folds.group", "name a column"]),
        (["--folds", "3", "--set", "data.folds.group=house"], ["data.folds.group", "is for GROUP"]),
        (["--folds", "200"], ["fold ", "200 folds of 150 samples"]),
        (["--folds", "12", "--set", "data.folds.by=GROUP", "--set", "data.folds.group=house"], ["12 folds of 11 groups"]),
        (["--folds", "3", "--set", "data.folds.by=GROUP", "--set", "data.folds.group=hose"], ["hose", "house"]),
    ],
)
def test_mistakes_in_training(words, parts, folder, tmp_path):
    run = Run(["train", folder / "config.pbtxt", "--set", f"run_dir={tmp_path}/run", *words], cwd=folder)
    assert run.status != DONE and len(run.error_lines) == 1, run
    assert all(part in run.error_lines[0] for part in parts), run


def test_a_fold_beyond_the_last(folder):
    words = ["data.validation_fraction=0", "data.folds.count=3", "data.folds.fold=3"]
    run = Run(["train", "config.pbtxt", *(word for text in words for word in ("--set", text))], cwd=folder)
    expect_error(run, USAGE, "data.folds.fold", "the last of 3 folds is 2")


@pytest.mark.parametrize(
    "words, parts",
    [
        ([], ["--input", "--held-back"]),
        (["--held-back", "--input", "test.csv"], ["--held-back", "leave out --input"]),
        (["--held-back", "--submission", "test.csv"], ["--submission", "--held-back"]),
        (["--held-back", "--id", "ids"], ["ids"]),
    ],
)
def test_mistakes_in_predicting(words, parts, folder):
    run = Run(["predict", "cv", *words], cwd=folder)
    assert run.status != DONE and len(run.error_lines) == 1, run
    assert all(part in run.error_lines[0] for part in parts), run
