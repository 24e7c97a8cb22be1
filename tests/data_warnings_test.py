"""Tests the warnings that `train` prints before the first step: one line for each probable mistake in the samples, and
none for samples without mistakes."""

import numpy as np
import pytest

from harness import DONE, Run, sets, write_config, write_table


def table(rows=60, seed=1):
    """Returns (two features of `rows` samples, the samples' classes). The class is 1 where the first feature is
    positive."""
    x = np.random.default_rng(seed).normal(size=(rows, 2)).round(4)
    return x, (x[:, 0] > 0).astype(int)


def warnings_of(folder, columns, y, *settings):
    names = [*columns, "y"]
    write_table(folder / "train.csv", [list(row) for row in zip(*columns.values(), y)], names)
    config = write_config(
        folder,
        """epochs: 1 global_batch: 16 data { train: "train.csv" csv { header: true label: "y" } validation_fraction: 0.2 }
        model { name: "mlp" mlp { } }""",
    )
    run = Run(["train", config, *sets(*settings)], cwd=folder)
    assert run.status == DONE, run
    return [line.removeprefix("lockstep: warning: ") for line in run.err.splitlines()]


def test_good_samples(tmp_path):
    x, y = table()
    assert warnings_of(tmp_path, {"a": x[:, 0], "b": x[:, 1]}, y) == []


@pytest.mark.parametrize(
    "name, values, parts",
    [
        ("flat", np.full(60, 7), ["flat is the same in all 48 training samples", "data.csv.ignore"]),
        ("number", np.arange(60) + 1, ["number counts the samples", "data.csv.ignore"]),
        ("income", table()[0][:, 1] * 5000, ["features are not scaled, income is from -", "data.csv.scaling: STANDARD"]),
    ],
)
@pytest.mark.parametrize("settings", [(), ("data.csv.scaling=STANDARD",)])
def test_a_feature(name, values, parts, settings, tmp_path):
    x, y = table()
    lines = warnings_of(tmp_path, {"a": x[:, 0], name: values}, y, *settings)
    if name == "income" and settings:
        assert lines == []
    else:
        assert len(lines) == 1 and all(part in lines[0] for part in ["train.csv: ", *parts]), lines


@pytest.mark.parametrize("settings, parts", [((), ["day is from 18", "STANDARD"]), (("data.csv.scaling=STANDARD",), [])])
def test_days_are_a_feature_but_no_id(settings, parts, tmp_path):
    x, y = table()
    days = np.datetime64("2020-01-01") + np.arange(60)
    lines = warnings_of(tmp_path, {"a": x[:, 0], "day": days}, y, "data.csv.date=day", *settings)
    assert len(lines) == (1 if parts else 0) and all(part in line for line in lines for part in parts), lines


def test_a_scaling_that_leaves_far_values(tmp_path):
    x, y = table()
    x[::5, 1] *= 1e6
    (line,) = warnings_of(tmp_path, {"a": x[:, 0], "b": x[:, 1]}, y, "data.csv.scaling=ROBUST")
    assert "data.csv.scaling: ROBUST leaves features far from 0, b is from -" in line and line.endswith("set it to QUANTILE")


def test_repeated_samples(tmp_path):
    x, y = table()
    x[30:] = x[:30]
    (line,) = warnings_of(tmp_path, {"a": x[:, 0], "b": x[:, 1]}, y)
    assert " of 12 validation samples are in the training set, too, such as number " in line


def test_free_text(tmp_path):
    x, y = table()
    columns = {"a": x[:, 0], "remark": [f"It is {value}." for value in x[:, 1]], "kind": ["u", "v"] * 30}
    unknown, line = warnings_of(tmp_path, columns, y, 'data.csv.category=["remark", "kind"]')
    assert "train.csv: 12 of 12 rows held back hold texts that no training row had, such as \"It is " in unknown
    assert "train.csv: remark has 48 different texts in 48 training samples, as free text and ids have" in line, line
    assert "data.csv.ignore" in line and "data.csv.category_min_rows" in line
    assert not warnings_of(tmp_path, columns, y, "data.csv.category=kind", "data.csv.ignore=remark", "run_dir=other")


def test_categories_are_left_alone(tmp_path):
    x, y = table()
    columns = {"kind": [f"k{i % 3}" for i in range(60)], "a": x[:, 0], "b": x[:, 1]}
    assert warnings_of(tmp_path, columns, y, "data.csv.category=kind", "data.csv.scaling=STANDARD") == []


@pytest.mark.parametrize(
    "labels, setting, part",
    [
        (lambda y: y + 1, "data.csv.label_names=false", "its labels are 1 to 2: classes are counted from 0"),
        (
            lambda y: 30 * y,
            "data.csv.label_names=false",
            "its labels are 0, 30: classes are counted from 0, so the model learns 31, of which 29 have no sample; "
            "data.csv.label_names: true would make 2 classes of them",
        ),
        (lambda y: 0 * y, "data.csv.label_names=true", "all samples are of one class"),
    ],
)
def test_labels(labels, setting, part, tmp_path):
    x, y = table()
    (line,) = warnings_of(tmp_path, {"a": x[:, 0], "b": x[:, 1]}, labels(y), setting)
    assert part in line
