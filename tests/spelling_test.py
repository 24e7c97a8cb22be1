"""Tests that a value is the same however a program spells it: a run that was trained on one spelling of a table, or
reads another one, predicts the same bits, and what a file's cells mean is what pandas reads."""

import csv
import io
import random
import re
import sys
from pathlib import Path

import pandas
import pytest

from harness import DATA, DONE, Run, expect_error, rows_of, step_losses, train, write_config

sys.path.insert(0, str(Path("python").absolute()))

import lockstep  # noqa: E402

ROWS = 160
LACKING = range(0, ROWS, 16)  # rows that lack a price and a city
COLUMNS = ["level", "code", "member", "city", "price", "count", "share", "label"]
# Texts that pandas.read_csv reads as missing by default (pandas 2.3, pandas._libs.parsers.STR_NA_VALUES).
MISSING = sorted(pandas._libs.parsers.STR_NA_VALUES) + ["NaT", "\\N"]


def plain_table():
    """Returns the table as dicts {column: cell}, in the spelling that needs no thought."""
    rng = random.Random(7)
    rows = []
    for i in range(ROWS):
        level, code, member = rng.randint(1, 4), rng.choice([7, 8, 12]), rng.random() < 0.5
        price, count = rng.randint(100, 999_999) / 100, rng.randint(100, 99_999)
        share = rng.randint(1, 999) / 1000
        is_yes = level + 2 * member + price / 3000 + rng.gauss(0, 0.5) > 4
        rows.append(
            {
                "level": str(level),
                "code": str(code),
                "member": str(member).lower(),
                "city": "" if i in LACKING else rng.choice(["Bern", "Rome", "Lima"]),
                "price": "" if i in LACKING else f"{price:.2f}",
                "count": str(count),
                "share": repr(share),
                "label": "yes" if is_yes else "no",
            }
        )
    return rows


PLAIN = plain_table()


def spelled(**spell):
    """Returns the table with some columns spelled by functions, which are not called for empty cells."""
    return [{c: spell[c](v) if c in spell and v else v for c, v in row.items()} for row in PLAIN]


def grouped(text, separator=","):
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}".replace(",", separator) + point + rest


def percent(text):
    return f"{float(text) * 100:.1f}%"


def lacking(text):
    return [{c: text if not v and c in ("city", "price") else v for c, v in row.items()} for row in PLAIN]


def through_pandas(**options):
    """Returns the table as pandas writes it after it has read it, and after the first row's categories were emptied."""
    frame = pandas.read_csv(io.StringIO(text_of(PLAIN)), **options)
    frame = frame.astype(dict.fromkeys(["level", "code", "member"], object))
    frame.loc[0, ["level", "code", "member"]] = None
    frame = frame.astype({"level": float, "code": float})
    return list(csv.DictReader(io.StringIO(frame.to_csv(index=False))))


def text_of(rows, delimiter=","):
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


# The spellings of the table that predict as the plain one. The value is (rows, whether the first row is another one).
TABLES = {
    "level 1.0": (spelled(level=lambda v: v + ".0"), False),
    "level 01": (spelled(level=lambda v: "0" + v), False),
    "level +1": (spelled(level=lambda v: "+" + v), False),
    "level 1e0": (spelled(level=lambda v: v + "e0"), False),
    "level in spaces": (spelled(level=lambda v: f" {v} "), False),
    "code 007": (spelled(code=lambda v: v.zfill(3)), False),
    "code 7.00": (spelled(code=lambda v: v + ".00"), False),
    "member True": (spelled(member=str.capitalize), False),
    "member TRUE": (spelled(member=str.upper), False),
    "price in dollars": (spelled(price=lambda v: "$" + v), False),
    "price in euros behind": (spelled(price=lambda v: v + " €"), False),
    "price with a code": (spelled(price=lambda v: "USD " + v), False),
    "price in groups": (spelled(price=grouped), False),
    "price in dollars and groups": (spelled(price=lambda v: "$" + grouped(v)), False),
    "price with a plus": (spelled(price=lambda v: "+" + v), False),
    "price with an exponent": (spelled(price=lambda v: v.replace(".", "") + "e-2"), False),
    "count in groups": (spelled(count=grouped), False),
    "count in groups of spaces": (spelled(count=lambda v: grouped(v, " ")), False),
    "count in groups of no-break spaces": (spelled(count=lambda v: grouped(v, "\u00a0")), False),
    "count in groups of apostrophes": (spelled(count=lambda v: grouped(v, "'")), False),
    "count 5.0": (spelled(count=lambda v: v + ".0"), False),
    "share in percent": (spelled(share=percent), False),
    "share in percent behind a space": (spelled(share=lambda v: percent(v).replace("%", " %")), False),
    **{f"missing {text!r}": (lacking(text), False) for text in MISSING},
    "through pandas": (through_pandas(), True),
    "through pandas as texts": (through_pandas(dtype=str, keep_default_na=False), True),
    "through pandas with nullable types": (through_pandas(dtype_backend="numpy_nullable"), True),
    "all columns": (
        spelled(
            level=lambda v: v + ".0",
            code=lambda v: v.zfill(3),
            member=str.upper,
            price=lambda v: "$" + grouped(v),
            count=grouped,
            share=percent,
        ),
        False,
    ),
}

CONFIG = """
data {{
  train: "{train}"
  csv {{
    header: true delimiter: "{delimiter}" label: "label" label_names: true missing: MEAN scaling: STANDARD
    category: ["level", "code", "member", "city"]
  }}
}}
model {{ mlp {{ hidden: 16 }} }}
optimizer {{ type: ADAM lr: 0.01 }}
epochs: 4 global_batch: 32 log {{ every_steps: 1 }}
"""


def trained_on(folder, rows, delimiter=","):
    (folder / "train.csv").write_text(text_of(rows, delimiter))
    config = write_config(folder, CONFIG.format(train=folder / "train.csv", delimiter=delimiter))
    run = train(config, folder / "run")
    assert run.status == DONE, run
    return folder / "run", run


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    return trained_on(tmp_path_factory.mktemp("plain"), PLAIN)[0]


@pytest.fixture(scope="module")
def predictions(plain_run):
    """Returns the predictions for each of TABLES, and for the plain table under "". One command makes all of them."""
    tables = {"": (PLAIN, False), **TABLES}
    files = []
    for i, (rows, _) in enumerate(tables.values()):
        files.append(plain_run.with_name(f"table-{i}.csv"))
        files[-1].write_text(text_of(rows))
    output = plain_run.with_name("predictions.csv")
    run = Run(["predict", plain_run, "--input", *files, "--output", output, "--probabilities"])
    assert run.status == DONE, run
    rows = [{k: v for k, v in row.items() if k != "index"} for row in rows_of(output)]
    return {name: rows[i * ROWS : (i + 1) * ROWS] for i, name in enumerate(tables)}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_predicts_alike_in_each_spelling(predictions, name):
    first = 1 if TABLES[name][1] else 0
    assert predictions[name][first:] == predictions[""][first:]
    assert len({row["label"] for row in predictions[""]}) == 2  # the model tells rows apart


def test_a_frame_predicts_like_its_file(plain_run, tmp_path):
    run = lockstep.Run(plain_run)
    names = ["level 01", "through pandas", "member TRUE", "missing 'None'", "code 007", "price in dollars"]
    path, frames = tmp_path / "all.csv", []
    for name in names:
        path.write_text(text_of(TABLES[name][0]))
        frames.append(pandas.read_csv(path))
    path.write_text(text_of([row for name in names for row in TABLES[name][0]]))
    from_path = run.predict(path, probabilities=True)
    from_frame = run.predict(pandas.concat(frames, ignore_index=True), probabilities=True)
    assert from_frame.drop(columns="index").to_dict("records") == [
        {k: v for k, v in row.items() if k != "index"} for row in from_path
    ]


TRAINED = {
    "as pandas writes it": (
        spelled(level=lambda v: v + ".0", code=lambda v: v + ".0", member=str.capitalize),
        ",",
        [],
    ),
    "in a spreadsheet's European form": (
        spelled(
            member=str.upper,
            price=lambda v: grouped(v).replace(",", "_").replace(".", ",").replace("_", "."),
            share=lambda v: v.replace(".", ","),
        ),
        ";",
        ["(price): ", "(share): "],
    ),
    "with currencies and percents": (
        spelled(price=lambda v: "$" + grouped(v), count=grouped, share=percent, level=lambda v: v.zfill(2)),
        ",",
        ["(price): ", "(count): ", "(share): "],
    ),
    "with missing values marked": (lacking("N/A"), ",", []),
    "with both spellings of a number": (
        [{**row, "level": row["level"] + (".0" if i % 2 else "")} for i, row in enumerate(PLAIN)],
        ",",
        [],
    ),
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.all_tier(
    "predictions have each of these spellings on every commit",
    unless=lambda name: name in ("in a spreadsheet's European form", "with both spellings of a number"),
)
def test_a_table_trains_alike_in_each_spelling(plain_run, tmp_path, name):
    rows, delimiter, remarks = TRAINED[name]
    folder, run = trained_on(tmp_path, rows, delimiter)
    losses = [step_losses(path) for path in (folder, plain_run)]
    assert losses[0] == losses[1] and len(losses[0]) == 20
    told = [line for line in run.err.splitlines() if " is read as " in line]
    assert [bool(re.search(re.escape(remark), line)) for remark, line in zip(remarks, told)] == [True] * len(remarks)
    assert len(told) == len(remarks), told


def test_what_training_does_not_know_is_counted(plain_run, tmp_path):
    new_city, new_code = {"city": "Oslo"}, {"code": "9"}
    rows = [
        {**row, **(new_city if i % 3 == 0 else {}), **(new_code if i % 5 == 0 else {})}
        for i, row in enumerate(PLAIN)
    ]
    (tmp_path / "test.csv").write_text(text_of(rows))
    unknown = sum(i % 3 == 0 or i % 5 == 0 for i in range(ROWS))
    for command in (["predict", plain_run, "--output", tmp_path / "p.csv"], ["evaluate", plain_run]):
        run = Run([*command, "--input", tmp_path / "test.csv"])
        assert run.status == DONE, run
        told = f"{unknown} of {ROWS} rows hold texts that no training row had, such as \"9\" in column 2 (code)"
        assert told in run.err
    run = Run(["evaluate", plain_run, "--input", plain_run.with_name("train.csv")])
    assert "no training row had" not in run.err


def test_truth_values_are_the_numbers_1_and_0(plain_run, tmp_path):
    """A frame of which a program made 0 and 1 of true and false predicts like the table."""
    (tmp_path / "test.csv").write_text(text_of(spelled(member=lambda v: str(int(v == "true")))))
    (tmp_path / "plain.csv").write_text(text_of(PLAIN))
    run = lockstep.Run(plain_run)
    predicted = [run.predict(tmp_path / name, probabilities=True) for name in ("test.csv", "plain.csv")]
    assert predicted[0] == predicted[1]


def test_a_missing_text_that_training_never_lacked_is_counted(plain_run, tmp_path):
    rows = [{**row, "code": ["None", "", "NA", row["code"]][i % 4]} for i, row in enumerate(PLAIN)]
    (tmp_path / "test.csv").write_text(text_of(rows))
    run = Run(["evaluate", plain_run, "--input", tmp_path / "test.csv"])
    assert run.status == DONE, run
    assert f"{ROWS * 3 // 4} of {ROWS} rows lack a text that all training rows had, in column 2 (code)" in run.err


def table_config(folder, data, more="epochs: 1"):
    return write_config(
        folder,
        f"""data {{ {data} }} model {{ mlp {{ hidden: 4 }} }} optimizer {{ type: ADAM lr: 0.05 }}
        global_batch: 20 {more}""",
    )


def test_names_that_look_like_numbers_stay_names(tmp_path):
    """Among other texts 01 and 1 are two classes, and 1.0 is 1."""
    labels = ["01", "1", "1.0", "A"]
    rows = [f"{i % 4},{labels[i % 4]}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    config = table_config(
        tmp_path,
        f'train: "{tmp_path}/t.csv" csv {{ header: true label: "label" label_names: true category: "x" }}',
        "epochs: 60",
    )
    assert train(config, tmp_path / "run").status == DONE
    predicted = lockstep.Run(tmp_path / "run").predict(tmp_path / "t.csv")
    assert [str(row["label"]) for row in predicted[:4]] == ["01", "1", "1", "A"]


def test_another_file_with_another_decimal_sign_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("a;label\n" + "".join(f"{1 + i % 7}.{100 + i};{i % 2}\n" for i in range(40)))
    (tmp_path / "test.csv").write_text("a;label\n1,134;0\n2,250;1\n")
    config = table_config(tmp_path, f'train: "{tmp_path}/t.csv" csv {{ header: true delimiter: ";" label: "label" }}')
    assert train(config, tmp_path / "run").status == DONE
    run = Run(["evaluate", tmp_path / "run", "--input", tmp_path / "test.csv"])
    assert run.status == DONE, run
    assert 'column 1 (a): "1,134" is read as 1134, as in training; by this file alone it would be 1.134' in run.err


def test_weights_have_the_decimal_sign_of_their_column(tmp_path):
    rows = [f"{i % 7};{['1,5', '0,25'][i % 2]};{i % 2}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a;w;label", *rows]) + "\n")
    config = table_config(
        tmp_path,
        f"""train: "{tmp_path}/t.csv" csv {{ header: true delimiter: ";" label: "label" ignore: "w" }}
        sampling {{ by: WEIGHTED column: "w" }}""",
    )
    run = train(config, tmp_path / "run")
    assert run.status == DONE, run


def test_labels_of_several_spellings(tmp_path):
    """The labels 1.0 and 1 are one class, for `new` and for training, and so are true and True."""
    for labels in (["1", "1.0", "2", "2.0"], ["true", "True", "FALSE", "false"]):
        rows = [f"{i % 7},{i % 2},{labels[2 * (i % 2) + (i // 2) % 2]}" for i in range(80)]
        (tmp_path / "t.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
        (tmp_path / "t.pbtxt").unlink(missing_ok=True)
        made = Run(["new", tmp_path / "t.csv", "--output", tmp_path / "t.pbtxt"])
        assert made.status == DONE and "2 classes of label" in made.out, made
        folder = tmp_path / labels[0]
        run = train(tmp_path / "t.pbtxt", folder, "--set", "epochs=2")
        assert run.status == DONE, run
        classes = re.findall(r'classes: "(.*)"', (folder / "config.pbtxt").read_text())
        assert sorted(classes) == sorted([labels[0], labels[2]] if labels[0] == "1" else ["True", "FALSE"])


def test_truth_values_are_labels(tmp_path):
    rows = [f"{i % 7},{bool(i % 2)},{bool(i % 3)}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,first,second", *rows]) + "\n")
    as_numbers = [f"{i % 7},{i % 2},{int(bool(i % 3))}" for i in range(60)]
    (tmp_path / "n.csv").write_text("\n".join(["a,first,second", *as_numbers]) + "\n")
    losses = []
    for task, labels in (("MULTI_LABEL", '["first", "second"]'), ("CLASSIFICATION", '"second"')):
        for name in "tn":
            config = write_config(
                tmp_path,
                f'data {{ train: "{tmp_path}/{name}.csv" task: {task} csv {{ header: true label: {labels} }} }}\n'
                "model { mlp { hidden: 4 } } optimizer { type: SGD lr: 0.1 }"
                " epochs: 1 global_batch: 20 log { every_steps: 1 }",
            )
            run = train(config, tmp_path / f"{task}-{name}")
            assert run.status == DONE, run
            losses.append(step_losses(tmp_path / f"{task}-{name}"))
    assert losses[0] == losses[1] and losses[2] == losses[3]


def test_a_group_is_one_in_each_spelling(tmp_path):
    """No group is both trained and held back, whatever its number looks like."""
    groups = ["NA" if i == 7 else str(i % 6) + (".0" if i % 4 == 0 else "") for i in range(96)]
    rows = [f"{i % 7},{group},{i % 2}" for i, group in enumerate(groups)]
    (tmp_path / "t.csv").write_text("\n".join(["a,site,label", *rows]) + "\n")
    config = write_config(
        tmp_path,
        f"""data {{ train: "{tmp_path}/t.csv" csv {{ header: true label: "label" ignore: "site" }}
        folds {{ count: 3 by: GROUP group: "site" }} }}
        model {{ mlp {{ hidden: 4 }} }} optimizer {{ type: SGD lr: 0.1 }} epochs: 1 global_batch: 16""",
    )
    run = Run(["train", config, "--folds", "3", "--set", f"run_dir={tmp_path / 'run'}"])
    assert run.status == DONE, run
    held_back = rows_of(tmp_path / "run" / "held_back.csv")
    folds = {}
    for row in held_back:
        group = groups[int(row["index"])]
        folds.setdefault(group if group == "NA" else float(group), set()).add(row["fold"])
    assert len(folds) == 7 and all(len(found) == 1 for found in folds.values()), folds


def test_ids_and_classes_of_a_submission_in_another_spelling(tmp_path):
    rows = [f"{200 + i},{i % 7},{i % 2}.0" for i in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["id,a,label", *rows]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(["id,a", *[f"{200 + i}.0,{i % 7}" for i in range(40)]]) + "\n")
    (tmp_path / "sample.csv").write_text("\n".join(["id,label", *[f"{200 + i},0" for i in range(40)]]) + "\n")
    config = write_config(
        tmp_path,
        f"""data {{ train: "{tmp_path}/train.csv"
        csv {{ header: true label: "label" label_names: true ignore: "id" }} }}
        model {{ mlp {{ hidden: 4 }} }} optimizer {{ type: ADAM lr: 0.05 }} epochs: 30 global_batch: 20""",
    )
    assert train(config, tmp_path / "run").status == DONE
    run = Run(
        ["predict", tmp_path / "run", "--input", tmp_path / "test.csv", "--submission", tmp_path / "sample.csv"]
        + ["--output", tmp_path / "sent.csv"]
    )
    assert run.status == DONE, run
    sent = rows_of(tmp_path / "sent.csv")
    assert [row["id"] for row in sent] == [str(200 + i) for i in range(40)]
    assert {row["label"] for row in sent} <= {"0", "1"}


NUMBERS = {
    # name: (cells, delimiter, the arguments with which pandas reads them)
    "decimal comma": (["1,5", "-0,125", "1281,5"], ";", {"decimal": ","}),
    "decimal comma in quotes": (["1,5", "-0,125", "1281,5"], ",", {"decimal": ","}),
    "three decimals after a semicolon": (["1,281", "2,500", "0,125"], ";", {"decimal": ","}),
    "groups": (["1,281", "950", "12,345,678"], ",", {"thousands": ","}),
    "groups after a semicolon": (["1,281", "950", "12,345,678"], ";", {"thousands": ","}),
    "groups and a decimal point": (["1,281.5", "950.25", "1"], ",", {"thousands": ","}),
    "points between groups": (["1.281,5", "950,25", "1.000"], ";", {"thousands": ".", "decimal": ","}),
    "spaces between groups": (["1 281", "950", "12 345 678"], ",", {"thousands": " "}),
    "exponents": (["1e3", "1.5E-2", "+4"], ",", {}),
    "missing": (["1", "NaT", "<NA>", "3"], ",", {"na_values": ["NaT"]}),
    "truth values": (["True", "False", "True"], ",", {}),
}


def test_numbers_are_those_of_pandas(tmp_path):
    """The mean of each column that a run keeps is the mean that pandas computes."""
    for delimiter in ",;":
        chosen = {n: v for n, v in NUMBERS.items() if v[1] == delimiter}
        rows = [[v[0][i % len(v[0])] for v in chosen.values()] + [i % 2] for i in range(60)]
        path = tmp_path / "t.csv"
        with open(path, "w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([[*chosen, "label"], *rows])
        config = write_config(
            tmp_path,
            f"""data {{ train: "{path}" csv {{ header: true delimiter: "{delimiter}" label: "label" missing: MEAN
            scaling: STANDARD }} }}
            model {{ mlp {{ hidden: 4 }} }} optimizer {{ type: SGD lr: 0.1 }} epochs: 1 global_batch: 20""",
        )
        folder = tmp_path / f"run{ord(delimiter)}"
        run = train(config, folder)
        assert run.status == DONE, run
        means = dict(re.findall(r'name: "(.*)"\s+mean: (\S+)', (folder / "config.pbtxt").read_text()))
        for name, (_, _, options) in chosen.items():
            mean = pandas.read_csv(path, sep=delimiter, **options)[name].astype(float).mean()
            assert float(means[name]) == pytest.approx(mean, rel=1e-12), name


def test_the_user_says_what_a_comma_means(tmp_path):
    rows = [f"{1 + i % 7},{100 + i};{i % 2}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a;label", *rows]) + "\n")
    means = []
    for words in ([], ["--set", "data.csv.decimal=POINT"]):
        config = write_config(
            tmp_path,
            f"""data {{ train: "{tmp_path}/t.csv"
            csv {{ header: true delimiter: ";" label: "label" scaling: STANDARD }} }}
            model {{ mlp {{ hidden: 4 }} }} optimizer {{ type: SGD lr: 0.1 }} epochs: 1 global_batch: 20""",
        )
        folder = tmp_path / f"run{len(means)}"
        run = train(config, folder, *words)
        assert run.status == DONE, run
        assert ("data.csv.decimal: POINT if the comma separates groups" in run.err) == (not words)
        means.append(float(re.search(r"mean: (\S+)", (folder / "config.pbtxt").read_text())[1]))
    assert means[1] == pytest.approx(1000 * means[0])


OTHER_SIGNS = [
    # the cells of a file and their numbers, and what is told; None: the file is refused
    ({"1,5": 1.5, "1,281": 1.281}, '"1,5" is read as 1.5, with the decimal comma of this file'),
    ({"1,5": 1.5, "1.281,5": 1281.5}, '"1,5" is read as 1.5, with the decimal comma of this file'),
    ({"1,281.5": 1281.5, "2.5": 2.5}, '"1,281.5" is read as 1281.5'),
    ({"1,5": 1.5, "1,281.5": 1281.5}, None),
]


@pytest.fixture(scope="module")
def run_with_points(tmp_path_factory):
    """Returns the folder of a run that was trained on a column with a decimal point."""
    folder = tmp_path_factory.mktemp("points")
    rows = [f"{i % 7}.5,{i % 2}" for i in range(20)]
    (folder / "t.csv").write_text("\n".join(["a,label", *rows]) + "\n")
    config = table_config(folder, f'train: "{folder}/t.csv" csv {{ header: true label: "label" }}')
    assert train(config, folder / "run").status == DONE
    return folder / "run"


@pytest.mark.parametrize("cells, told", OTHER_SIGNS)
@pytest.mark.all_tier("other numbers go the same way", unless=lambda cells: {"1.281,5", "1,281.5"} & set(cells) and "1,5" in cells)
def test_another_file_may_have_another_decimal_sign(run_with_points, tmp_path, cells, told):
    """A column whose numbers cannot have the sign that it has in training is read with the sign that it has."""
    (tmp_path / "test.csv").write_text("a;label\n" + "".join(f"{cell};0\n" for cell in cells))
    (tmp_path / "plain.csv").write_text("a,label\n" + "".join(f"{number},0\n" for number in cells.values()))
    run, plain = (Run(["evaluate", run_with_points, "--json", "--input", tmp_path / name]) for name in ("test.csv", "plain.csv"))
    if told is None:
        expect_error(run, DATA, "test.csv:2: column 1 (a)", "no finite number with the decimal point of this column")
    else:
        assert run.status == DONE and f"column 1 (a): {told}" in run.err and run.out == plain.out, run


def test_new_reads_numbers_as_training_does(tmp_path):
    cells = {"price": "$1,281.50", "share": "5.1%", "count": "1,281", "note": "N/A"}
    rows = [
        [f"${1000 + i}.50", f"{i % 9}.1%", f"{1 + i % 9},{100 + i}", ["N/A", str(i)][i % 2], "ab"[i % 2]]
        for i in range(60)
    ]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows([[*cells, "label"], *rows])
    made = Run(["new", tmp_path / "t.csv", "--output", tmp_path / "t.pbtxt"])
    assert made.status == DONE, made
    text = (tmp_path / "t.pbtxt").read_text()
    for column in ("price", "share", "count"):
        assert f'"{column}" holds numbers' in made.out + made.err + text, made
    assert not re.search(r"^\s*(category|ignore):", text, re.M), text
    run = train(tmp_path / "t.pbtxt", tmp_path / "run", "--set", "epochs=1")
    assert run.status == DONE, run


def test_new_keeps_a_class_named_none(tmp_path):
    rows = [f"{i % 7},{['None', 'Mild', 'N/A'][i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,label", *rows]) + "\n")
    made = Run(["new", tmp_path / "t.csv", "--output", tmp_path / "t.pbtxt"])
    assert made.status == DONE and "3 classes of label" in made.out, made
    assert train(tmp_path / "t.pbtxt", tmp_path / "run", "--set", "epochs=1").status == DONE


def test_new_finds_the_semicolon_between_numbers_with_commas(tmp_path):
    rows = [f"{i % 7},5;{i % 5},25;{i % 2}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    made = Run(["new", tmp_path / "t.csv", "--output", tmp_path / "t.pbtxt"])
    assert made.status == DONE and 'delimiter: ";"' in (tmp_path / "t.pbtxt").read_text(), made
