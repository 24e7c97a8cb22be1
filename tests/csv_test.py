"""Tests CSV tables: Lockstep finds the same cells as Python's csv module, and its inputs, accuracy and predictions for
a table of passengers are those that NumPy computes from the same rows."""

import ast
import csv
import datetime
import gzip
import io
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import zipfile

import numpy as np
import pytest
from harness import (
    DATA,
    DONE,
    USAGE,
    Run,
    events,
    expect_error,
    expect_refused,
    path_of,
    predict,
    rows_of,
    skip_without_gpus,
    train,
    weights_of,
    write_config,
    write_table,
)
from sampler_reference import Permutation

CSV_PRINT = path_of("CSV_PRINT")


def cells_of(path, delimiter):
    """Returns the rows of cells that Lockstep reads from the file, or None if Lockstep reports an error."""
    done = subprocess.run([CSV_PRINT, path, delimiter], capture_output=True)
    if done.returncode == DATA:
        assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(os.fsencode(path)), done.stderr
        return None
    assert done.returncode == 0, done
    out, rows = io.BytesIO(done.stdout), []
    while line := out.readline():
        rows.append([out.read(int(out.readline())).decode() for _ in range(int(line))])
    return rows


PIECES = ["a", "1", "é", '"', '""', ",", ";", "\t", "|", "\n", "\r\n", "\r", " "]


def test_cells_that_python_wrote(tmp_path):
    rng = random.Random(1)
    for case in range(300):
        delimiter, quoting, line_end = rng.choice(",;\t|"), *rng.choice(
            [(csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_ALL, "\r"), (csv.QUOTE_MINIMAL, "\r\n")]
        )
        width = rng.randint(1, 5)
        rows = []
        for _ in range(rng.randint(1, 8)):
            row = ["".join(rng.choices(PIECES, k=rng.randint(0, 6))) for _ in range(width)]
            # A cell without quotes gets no spaces or tabs at its ends, because Lockstep strips them there.
            rows.append(row if quoting == csv.QUOTE_ALL else [cell.strip(" \t") for cell in row])
        path = tmp_path / "t.csv"
        with open(path, "w", newline="", encoding=rng.choice(["utf-8", "utf-8-sig"])) as file:
            for row in rows:
                csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=line_end).writerow(row)
                file.write(rng.choice(["", "", line_end, " " + line_end]))
        assert cells_of(path, delimiter) == rows, (case, path.read_bytes())


def test_any_text_as_python_reads_it(tmp_path):
    rng = random.Random(2)
    refused = 0
    for case in range(1500):
        text = "".join(rng.choices(["a", "1", '"', '"', ",", "\n", "\r", "\r\n"], k=rng.randint(1, 16)))
        path = tmp_path / "t.csv"
        path.write_text(text, newline="")
        try:
            with open(path, newline="") as file:
                rows = [row for row in csv.reader(file, strict=True) if row]
        except csv.Error:
            rows = None
            refused += 1
        assert cells_of(path, ",") == rows, (case, text)
    assert 100 < refused < 1400


# ---- Passengers ------------------------------------------------------------------------------------------------------

HEADER = ["PassengerId", "Survived", "Class", "Name", "Sex", "Age", "Fare", "Port"]
CSV = """header: true label: "Survived" ignore: ["PassengerId", "Name"] category: ["Sex", "Port"]
  missing: MEAN scaling: STANDARD"""
SEED, FRACTION = 5, 0.2


def passengers(rows, seed, label=str):
    """Returns rows of a table in which women and the first class are more likely to survive."""
    rng = random.Random(seed)
    table = []
    for i in range(rows):
        sex, class_ = rng.choice(["male", "female"]), rng.randint(1, 3)
        survived = rng.random() < (0.9 if sex == "female" else 0.1) + (0.05 if class_ == 1 else -0.05)
        age = rng.choice(["", "NA", f"{rng.uniform(0.5, 80):.1f}", f"{rng.uniform(0.5, 80):.1f}"])
        name = f'Doe, {"Mrs." if sex == "female" else "Mr."} "{i}"'
        port = rng.choice(["S", "C", "Queens, town", "" if i % 7 == 0 else "S"])
        table.append([str(i), label(int(survived)), str(class_), name, sex, age, f"{rng.lognormvariate(3, 1):.4f}", port])
    return table


def write_passengers(path, rows):
    write_table(path, rows, HEADER)


def training_rows(rows):
    order = Permutation(rows, SEED, 2**64 - 1)
    return sorted(order[p] for p in range(rows - math.ceil(rows * FRACTION)))


class Encoder:
    """Computes with NumPy the model's inputs that Lockstep makes of the rows."""

    def __init__(self, rows):
        self.numbers = {}
        for name in ("Class", "Age", "Fare"):
            values = self.values(rows, name)
            self.numbers[name] = np.nanmean(values), np.nanstd(values)
        self.texts = {name: sorted({row[HEADER.index(name)] for row in rows}) for name in ("Sex", "Port")}

    @staticmethod
    def values(rows, name):
        cells = [row[HEADER.index(name)] for row in rows]
        return np.array([np.nan if cell in ("", "NA") else float(cell) for cell in cells])

    def __call__(self, rows):
        columns = []
        for name in HEADER:
            if name in self.numbers:
                mean, std = self.numbers[name]
                columns.append(np.nan_to_num((self.values(rows, name) - mean) / std))
            for text in self.texts.get(name, []):
                columns.append(np.array([float(row[HEADER.index(name)] == text) for row in rows]))
        return np.stack(columns, axis=1).astype("f4")


def kept_columns(run_dir):
    """Returns the `column` blocks of the run's config as {name: {field: [values]}}."""
    text = (run_dir / "config.pbtxt").read_text()
    columns = {}
    for block in re.findall(r"^ +column \{\n(.*?)^ +\}", text, re.M | re.S):
        fields = {}
        for field, value in re.findall(r"^ +(\w+): (.*)$", block, re.M):
            value = ast.literal_eval("b" + value).decode() if value.startswith('"') else float(value)
            fields.setdefault(field, []).append(value)
        columns[fields.pop("name")[0]] = fields
    return columns


def train_on(folder, csv_text=CSV, data=f"validation_fraction: {FRACTION}", ranks=None, text="", file="train.csv"):
    skip_without_gpus(ranks)
    config = write_config(
        folder,
        f"""seed: {SEED} epochs: 20 global_batch: 32 optimizer {{ lr: 0.02 }} {text}
        data {{ train: "{file}" {data} csv {{ {csv_text} }} }}""",
    )
    run = train(config, folder / "run", ranks=ranks)
    assert run.status == DONE, run
    return events(folder / "run", "done")[0]


def linear_layer(run_dir):
    weights = weights_of(run_dir)
    assert sorted(value.dim() for value in weights.values()) == [1, 2]
    return [value.numpy() for value in sorted(weights.values(), key=lambda value: -value.dim())]


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("a test on one rank is a part of the test on two", unless=lambda ranks: ranks == 2)
def test_passengers(tmp_path, ranks):
    rows = passengers(600, seed=1)
    # The held-back rows have a text that no training row has, and numbers that would shift the means if they were
    # included.
    held_back = sorted(set(range(600)) - set(training_rows(600)))
    rows[held_back[0]][7] = "Atlantis"
    for i in held_back[1:5]:
        rows[i][6] = "1e6"
    write_passengers(tmp_path / "train.csv", rows)
    done = train_on(tmp_path, ranks=ranks)
    assert done["val_accuracy"] > 0.8

    encode = Encoder([rows[i] for i in training_rows(600)])
    kept = kept_columns(tmp_path / "run")
    assert list(kept) == ["Class", "Sex", "Age", "Fare", "Port"]
    for name, (mean, std) in encode.numbers.items():
        np.testing.assert_allclose([*kept[name]["mean"], *kept[name]["std"]], [mean, std], rtol=1e-12)
    for name, texts in encode.texts.items():
        assert kept[name] == {"category": texts}
    assert "" in encode.texts["Port"] and "Atlantis" not in encode.texts["Port"]

    weight, bias = linear_layer(tmp_path / "run")

    def expected(rows):
        logits = encode(rows) @ weight.T + bias
        e = np.exp(logits - logits.max(1, keepdims=True))
        return logits.argmax(1), (e / e.sum(1, keepdims=True)).max(1)

    validation = [rows[i] for i in held_back]
    labels, _ = expected(validation)
    right = np.mean([str(label) == row[1] for label, row in zip(labels, validation)])
    assert done["val_accuracy"] == pytest.approx(right, abs=1e-6)
    figures = f"loss {done['val_loss']:.4f}  accuracy {done['val_accuracy']:.4f}"
    assert figures in Run(["evaluate", tmp_path / "run"], ranks=ranks).out
    write_passengers(tmp_path / "held_back.csv", validation)
    assert figures in Run(["evaluate", tmp_path / "run", "--input", tmp_path / "held_back.csv"]).out

    # The test table lacks the label and the ignored column Name, and has the other columns in another order. It has a
    # port, "Utopia", and a text for a missing age, "null", that do not occur in the training table.
    test = passengers(100, seed=2)
    test[3][7], test[4][5] = "Utopia", "null"
    order = [HEADER.index(name) for name in ("Port", "Fare", "Age", "Sex", "Class", "PassengerId")]
    write_table(tmp_path / "test.csv", [[row[i] for i in order] for row in test], [HEADER[i] for i in order])
    test[4][5] = ""
    labels, probabilities = expected(test)
    predictions = predict(tmp_path / "run", tmp_path / "test.csv")
    assert [p["label"] for p in predictions] == [str(label) for label in labels]
    np.testing.assert_allclose([float(p["probability"]) for p in predictions], probabilities, atol=2e-6)


def test_labels_by_name(tmp_path):
    names = ["perished, alas", "survived"]
    write_passengers(tmp_path / "train.csv", passengers(300, seed=1, label=lambda survived: names[survived]))
    write_passengers(tmp_path / "test.csv", passengers(100, seed=2, label=lambda survived: names[survived]))
    done = train_on(tmp_path, CSV + " label_names: true", 'validation: "test.csv"')
    assert done["val_accuracy"] > 0.8
    labels = [row["Survived"] for row in rows_of(tmp_path / "test.csv")]
    predictions = predict(tmp_path / "run", tmp_path / "test.csv")
    assert {p["label"] for p in predictions} == set(names)
    right = np.mean([p["label"] == label for p, label in zip(predictions, labels)])
    assert right == pytest.approx(done["val_accuracy"], abs=1e-6)

    rows = passengers(3, seed=3, label=lambda survived: "unknown")
    write_passengers(tmp_path / "other.csv", rows)
    run = Run(["evaluate", tmp_path / "run", "--input", tmp_path / "other.csv"])
    expect_error(run, DATA, 'other.csv:2: column 2 (Survived): label "unknown" is none of those in training')
    write_passengers(tmp_path / "other.csv", [[*row[:1], "", *row[2:]] for row in rows])
    assert len(predict(tmp_path / "run", tmp_path / "other.csv")) == 3


def test_house_prices(tmp_path):
    """Trains a regression on a table without a header: all rows are for training, and columns are named by number."""
    rng = np.random.default_rng(1)
    kinds, size = rng.integers(0, 3, 200), rng.uniform(50, 200, 200)
    price = 0.01 * size + kinds
    rows = [[f"{s:.6f}", "xyz"[k], f"{p:.6f}"] for s, k, p in zip(size, kinds, price)]
    (tmp_path / "train.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (tmp_path / "test.csv").write_text("125,y\n125,z\n300,unknown\n")
    train_on(tmp_path, 'category: "1" scaling: STANDARD', "task: REGRESSION")
    weight, bias = linear_layer(tmp_path / "run")
    size = np.array([float(row[0]) for row in rows])
    inputs = np.array([[125, 0, 1, 0], [125, 0, 0, 1], [300, 0, 0, 0]], "f8")
    inputs[:, 0] = (inputs[:, 0] - size.mean()) / size.std()
    values = [float(p["value"]) for p in predict(tmp_path / "run", tmp_path / "test.csv")]
    np.testing.assert_allclose(values, (inputs @ weight.T + bias)[:, 0], rtol=1e-4)


def test_several_labels_by_name(tmp_path):
    """Checks that Lockstep finds the target columns by name in files that hold them in another order, although the
    config gives the target columns by number."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    columns = {"a": x[:, 0], "b": x[:, 1], "y1": x[:, 0], "y2": 5 - x[:, 1], "y3": 9 * x[:, 2], "c": x[:, 2]}

    def write(name, names):
        write_table(tmp_path / name, [[f"{columns[n][i]:.6f}" for n in names] for i in range(len(x))], names)

    write("train.csv", ["a", "b", "y1", "y2", "y3", "c"])
    write("other.csv", ["y1", "c", "y3", "b", "y2", "a"])
    write("bare.csv", ["c", "b", "a"])
    write("lacks.csv", ["c", "b", "a", "y3", "y1"])
    data = 'validation: "other.csv" task: REGRESSION'
    done = train_on(tmp_path, "header: true label_column: 2 label_columns: 3", data)
    config = (tmp_path / "run" / "config.pbtxt").read_text()
    assert re.findall(r'label: "(\w+)"', config) == ["y1", "y2", "y3"], config
    predictions = predict(tmp_path / "run", tmp_path / "train.csv")
    assert list(predictions[0]) == ["index", "value_0", "value_1", "value_2"]
    for name in ["other.csv", "bare.csv"]:
        assert predict(tmp_path / "run", tmp_path / name) == predictions, name
    for name in ["train.csv", "other.csv"]:
        run = Run(["evaluate", tmp_path / "run", "--input", tmp_path / name])
        assert run.status == DONE and f"{done['val_loss']:.4f}" in run.out, run
    run = Run(["predict", tmp_path / "run", "--input", tmp_path / "lacks.csv"])
    expect_error(run, DATA, 'lacks.csv: no column "y2", one of the labels')


@pytest.mark.parametrize(
    "csv_text,status,words",
    [
        ("", DATA, 'train.csv:1: column 1: "PassengerId" is no finite number; if the first line holds names'),
        ('header: true label: "Survivd"', DATA, 'data.csv.label: the header has no column "Survivd"; did you mean "Survived"?'),
        ('header: true label: "Survived"', DATA, 'train.csv:2: column 4 (Name): "Doe, M'),
        (CSV.replace("missing: MEAN", ""), DATA, "is no value: fill it in, or set data.csv.missing: MEAN"),
        (CSV + ' ignore: "Sex"', DATA, "column 5 (Sex) is given twice"),
        (CSV + " scale: 2", USAGE, "data.csv.scale: has no meaning with data.csv.scaling"),
        (CSV.replace("missing: MEAN", "") + " missing_indicator: true", USAGE, "data.csv.missing_indicator: needs data.csv.missing: MEAN"),
        (CSV.replace("scaling: STANDARD", "standardize: true"), USAGE, "data.csv.standardize is now data.csv.scaling: write scaling: STANDARD"),
        (CSV + ' date: "Age"', DATA, 'is no date such as 2024-05-31 or 2024-05-31 14:30; write it so, or move "Age" from'),
        (CSV + " label_column: 1", USAGE, "data.csv.label_column: data.csv.label is given too"),
        ('label: "Survived"', USAGE, "data.csv.label: needs data.csv.header: true"),
        ('ignore: "Name"', USAGE, 'data.csv.ignore: "Name" is no column\'s number'),
    ],
)
def test_mistakes_are_one_line(tmp_path, csv_text, status, words):
    write_passengers(tmp_path / "train.csv", passengers(50, seed=1))
    expect_refused(tmp_path, f'data {{ train: "train.csv" csv {{ {csv_text} }} }}', status, words)


def test_files_that_do_not_go_together(tmp_path):
    rows = passengers(60, seed=1)
    write_passengers(tmp_path / "train.csv", rows)
    write_table(tmp_path / "more.csv", rows, [*HEADER[:5], "age", *HEADER[6:]])
    text = f'data {{ train: ["train.csv", "more.csv"] csv {{ {CSV} }} }}'
    expect_refused(tmp_path, text, DATA, 'more.csv:1: column 6 is "age" where ', 'train.csv has "Age"')
    train_on(tmp_path)
    run = Run(["predict", tmp_path / "run", "--input", tmp_path / "more.csv"], cwd=tmp_path)
    expect_error(run, DATA, 'more.csv: no column "Age", which training had; did you mean "age"?')


# ---- Features --------------------------------------------------------------------------------------------------------

NAMES = ["size", "wage", "day", "kind", "price"]


def flats(rows, seed):
    """Returns rows with missing numbers, a heavy-tailed column, dates (some with a time), and texts (some rare)."""
    rng = np.random.default_rng(seed)
    table = []
    for i in range(rows):
        size, wage = rng.normal(80, 20), rng.lognormal(8, 1.5)
        day = datetime.datetime(1960, 1, 1) + datetime.timedelta(days=int(rng.integers(0, 20000)), minutes=int(rng.integers(0, 1440)))
        text = f"{day:%Y-%m-%d}" if i % 3 else f"{day:%Y-%m-%dT%H:%M}"
        kind = rng.choice(["a", "b", f"rare{i}"], p=[0.5, 0.4, 0.1])
        gap = rng.random(3) < 0.2
        table.append(["NA" if gap[0] else f"{size:.6f}", f"{wage:.6f}", "" if gap[1] else text, kind, f"{size / 50 + (kind == 'a'):.6f}"])
    return table


def column(rows, name, convert=float):
    """Returns the values of the column `name`; NaN stands for a missing value."""
    cells = [row[NAMES.index(name)] for row in rows]
    return np.array([np.nan if cell in ("", "NA") else convert(cell) for cell in cells])


def days_of(text):
    return (datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)


def robust(x):
    """Returns a function that scales like scikit-learn's RobustScaler fitted on `x`."""
    low, middle, high = np.percentile(x, [25, 50, 75])
    return lambda v: (v - middle) / (high - low)


def quantile(x):
    """Returns a function that scales like scikit-learn's QuantileTransformer(n_quantiles=1000,
    output_distribution="normal", subsample=None) fitted on `x`."""
    shares = np.linspace(0, 1, min(1000, len(x)))
    quantiles = np.percentile(x, 100 * shares)
    least = 1e-7 - np.spacing(1)

    def scale(v):
        share = 0.5 * (np.interp(v, quantiles, shares) - np.interp(-v, -quantiles[::-1], -shares[::-1]))
        share[v <= quantiles[0]], share[v >= quantiles[-1]] = 0, 1
        return np.array([statistics.NormalDist().inv_cdf(p) for p in np.clip(share, least, 1 - least)])

    return scale


class FlatEncoder:
    def __init__(self, rows, make_scale):
        self.medians, self.scales = {}, {}
        for name, convert in (("size", float), ("wage", float), ("day", days_of)):
            present = column(rows, name, convert)
            present = present[~np.isnan(present)]
            self.medians[name], self.scales[name] = np.median(present), make_scale(present)

    def __call__(self, rows):
        def number(name, convert=float):
            values = column(rows, name, convert)
            return self.scales[name](np.where(np.isnan(values), self.medians[name], values))

        days = column(rows, "day", days_of)
        gap = np.isnan(days)
        dates = [datetime.datetime.fromisoformat(row[2]) if row[2] else datetime.datetime(1970, 1, 1) for row in rows]
        time = np.nan_to_num(days % 1)
        lengths = np.array([(datetime.date(d.year + 1, 1, 1) - datetime.date(d.year, 1, 1)).days for d in dates])
        year = (np.array([d.timetuple().tm_yday - 1 for d in dates]) + time) / lengths
        week = (np.array([d.weekday() for d in dates]) + time) / 7
        circles = [np.where(gap, 0, f(2 * np.pi * place)) for place in (year, week, time) for f in (np.sin, np.cos)]
        kinds = np.array([row[3] for row in rows])
        texts = [kinds == "a", kinds == "b", ~np.isin(kinds, ["a", "b"])]
        size_gap = np.isnan(column(rows, "size"))
        columns = [number("size"), size_gap, number("wage"), number("day", days_of), gap, *circles, *texts]
        return np.stack([np.asarray(values, "f8") for values in columns], axis=1).astype("f4")


@pytest.mark.parametrize("scaling, make_scale", [("ROBUST", robust), ("QUANTILE", quantile)])
def test_scaled_numbers_dates_and_rare_texts(tmp_path, scaling, make_scale):
    """Checks that the predictions of a linear layer for unseen rows are those that NumPy computes from the layer's
    weights and the inputs that FlatEncoder makes."""
    rows = flats(300, seed=1)
    held_back = sorted(set(range(300)) - set(training_rows(300)))
    # One held-back row lacks a wage, and another has a huge one. Neither may change the training rows' statistics. No
    # training row lacks a wage.
    rows[held_back[0]][1], rows[held_back[1]][1] = "NA", "1e9"
    write_table(tmp_path / "train.csv", rows, NAMES)
    csv_text = f"""header: true label: "price" category: "kind" category_min_rows: 5 date: "day"
        missing: MEAN missing_indicator: true scaling: {scaling}"""
    train_on(tmp_path, csv_text, f"task: REGRESSION validation_fraction: {FRACTION}")
    encode = FlatEncoder([rows[i] for i in training_rows(300)], make_scale)
    weight, bias = linear_layer(tmp_path / "run")
    assert weight.shape == (1, 14)

    test = [rows[i] for i in held_back] + flats(50, seed=2)
    order = [3, 2, 1, 0]
    write_table(tmp_path / "test.csv", [[row[i] for i in order] for row in test], [NAMES[i] for i in order])
    values = [float(p["value"]) for p in predict(tmp_path / "run", tmp_path / "test.csv")]
    inputs = encode(test).astype("f8")
    np.testing.assert_allclose(values, (inputs @ weight.T + bias)[:, 0], rtol=2e-5, atol=2e-5)


def test_the_formula_of_dates_is_the_documented_one(tmp_path):
    """Runs the function of docs/data.md. Checks the numbers of its example, and that the predictions of a linear layer
    for unseen dates are those of the function's features, with times, offsets, leap years and years before 1970."""
    text = (pathlib.Path(__file__).parent.parent / "docs/data.md").read_text()
    code = re.search(r"```python\n(import datetime, math\n.*?)```", text, re.DOTALL)[1]
    exec(code, functions := {})
    example = text[text.index("2024-05-31 18:00 is") :].partition("missing date")[0]
    expected = [f"{number:.4f}" for number in functions["features_of_date"]("2024-05-31 18:00", True)]
    assert [f"{float(number):.4f}" for number in re.findall(r"-?\d+\.\d{4}\b|19874\.75", example)] == expected

    rng = np.random.default_rng(4)

    def day(with_time):
        moment = datetime.datetime(1950, 1, 1) + datetime.timedelta(minutes=int(rng.integers(0, 60 * 24 * 36500)))
        text = moment.isoformat(sep="T" if rng.random() < 0.5 else " ", timespec="minutes")
        offset = rng.choice(["", "Z", "+02:00", "-09:30", "+0530"])
        return (text + offset) if with_time else text[:10]

    for with_times in (False, True):
        folder = tmp_path / str(with_times)
        folder.mkdir()
        rows = [[day(with_times), rng.normal()] for _ in range(100)]
        write_table(folder / "train.csv", rows, ["day", "price"])
        train_on(folder, 'header: true label: "price" date: "day" scale: 0.0001', "task: REGRESSION")
        weight, bias = linear_layer(folder / "run")
        test = [day(with_times) for _ in range(50)] + ["2000-02-29", "2023-12-31", "1969-12-31"]
        write_table(folder / "test.csv", [[text] for text in test], ["day"])
        inputs = np.array([functions["features_of_date"](text, with_times) for text in test])
        inputs[:, 0] *= 0.0001
        assert weight.shape == (1, 7 if with_times else 5)
        values = [float(row["value"]) for row in predict(folder / "run", folder / "test.csv")]
        np.testing.assert_allclose(values, (inputs @ weight.T + bias)[:, 0], rtol=2e-5, atol=2e-5)


def test_folds_lack_values_in_different_columns(tmp_path):
    """Checks that each fold has missing indicators only for the columns in which its own training rows lack values.
    Only row 7 lacks a value, so the fold that holds it back has no indicator."""
    rows = flats(60, seed=3)
    for row in rows:
        row[0], row[2] = row[0].replace("NA", "80"), row[2] or "2000-01-01"
    rows[7][0] = "NA"
    write_table(tmp_path / "train.csv", rows, NAMES)
    text = """epochs: 2 global_batch: 16 data { train: "train.csv" task: REGRESSION
        csv { header: true label: "price" ignore: "kind" date: "day" missing: MEAN missing_indicator: true scaling: ROBUST } }"""
    config = write_config(tmp_path, text)
    run = Run(["train", config, "--folds", "2", "--set", "run_dir=cv"], cwd=tmp_path)
    assert run.status == DONE, run
    rows_held_back = rows_of(tmp_path / "cv/held_back.csv")
    fold = int(rows_held_back[7]["fold"])
    texts = [(tmp_path / f"cv/fold-{i}/config.pbtxt").read_text() for i in range(2)]
    # Each config contains `missing_indicator: true` once, because the user has set it in `data.csv`, and a second time,
    # for a column, if the fold trains on row 7.
    assert [text.count("missing_indicator: true") for text in texts] == [2 - (i == fold) for i in range(2)]
    assert Run(["evaluate", "cv", "--input", "train.csv"], cwd=tmp_path).status == DONE


# ---- Compressed files ------------------------------------------------------------------------------------------------


def test_compressed_files(tmp_path):
    rows = passengers(200, seed=1)
    write_passengers(tmp_path / "plain.csv", rows)
    text = (tmp_path / "plain.csv").read_bytes()
    (tmp_path / "train.csv.gz").write_bytes(gzip.compress(text))
    with zipfile.ZipFile(tmp_path / "more.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.csv", text)
    done = train_on(tmp_path, data='validation: "more.csv.zip"', file="train.csv.gz")
    plain = predict(tmp_path / "run", tmp_path / "plain.csv")
    for name in ("train.csv.gz", "more.csv.zip"):
        assert predict(tmp_path / "run", tmp_path / name) == plain
    run = Run(["evaluate", tmp_path / "run", "--input", tmp_path / "train.csv.gz"])
    assert run.status == DONE and f"{done['val_loss']:.4f}" in run.out, run
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(text)[:-20])
    run = Run(["predict", tmp_path / "run", "--input", tmp_path / "cut.csv.gz"])
    expect_error(run, DATA, "cut.csv.gz: the compressed file is cut short: copy it or download it again")
