"""Tests that a table which another program has written, with a delimiter, a decimal sign or types of its own, gives the
same predictions, and that one line says how it was read. pandas says what the cells are."""

import csv
import decimal
import re
import shutil
import sys
from pathlib import Path

import numpy
import pandas
import pytest

from harness import DATA, DONE, USAGE, Run, expect_error, rows_of, sets, step_losses, train, write_config

sys.path.insert(0, str(Path("python").absolute()))

import lockstep  # noqa: E402

ROWS = 60


def cases(*names, further=()):
    """Returns parameters, of which only `names` run on every commit."""
    mark = pytest.mark.all_tier("other spellings and types take the same path")
    waiting = (name for name in further if name not in names)
    return [*names, *(pytest.param(*(name if isinstance(name, tuple) else (name,)), marks=mark) for name in waiting)]


def numbers(rows=ROWS):
    """Returns the features of a table: numbers with groups, with fractions and without both, a category and ids."""
    draw = numpy.random.default_rng(3)
    return pandas.DataFrame(
        {
            "price": draw.integers(1_000_000, 9_999_999, rows) / 1000,
            "share": draw.integers(1, 999, rows) / 1000,
            "count": draw.integers(1000, 9999, rows),
            "kind": draw.choice([1, 2, 10], rows),
            "id": numpy.arange(rows) + 200,
        }
    )


def labels(frame):
    return (frame.price / 1000 + 4 * frame.share + frame.kind / 5 > frame.price.median() / 1000 + 2.5).astype(int)


def german(value):
    """Returns a number as a German spreadsheet writes it: 1.281,5."""
    return f"{value:,}".replace(",", "_").replace(".", ",").replace("_", ".")


def write(path, frame, delimiter=",", spell=str):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(frame.columns)
        writer.writerows([[spell(value) for value in row] for row in frame.astype(object).to_numpy()])
    return path


def config_of(folder, data, csv_options, more="", epochs=4):
    return write_config(
        folder,
        f"""data {{ train: "{data}" {more} csv {{ header: true {csv_options} scaling: STANDARD }} }}
        model {{ mlp {{ hidden: 8 }} }} optimizer {{ type: ADAM lr: 0.02 }} epochs: {epochs} global_batch: 20 log {{ every_steps: 1 }}""",
    )


def trained(folder, name, frame, delimiter=",", spell=str, csv_options='label: "label" category: "kind"', **options):
    data = write(folder / f"{name}.csv", frame, delimiter, spell)
    ignored = 'ignore: "id"' if "id" in frame else ""
    config = config_of(folder, data, f'delimiter: "{delimiter}" {ignored} {csv_options}', **options)
    run = train(config, folder / name)
    assert run.status == DONE, run
    return folder / name, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns the folders of two runs on one table: one in C's spelling, and one in that of a German spreadsheet."""
    folder = tmp_path_factory.mktemp("runs")
    frame = numbers().assign(label=lambda frame: labels(frame))
    return {
        "plain": trained(folder, "plain", frame)[0],
        "german": trained(folder, "german", frame, ";", german)[0],
    }


@pytest.fixture(scope="module")
def expected(runs):
    """Returns what the plain run predicts of its own file."""
    return lockstep.Run(runs["plain"]).predict(runs["plain"].with_suffix(".csv"), probabilities=True)


FRAMES = {
    "as it is": lambda frame: frame,
    "float32": lambda frame: frame.astype({"price": "float32", "share": "float32"}),
    "Float64": lambda frame: frame.astype({"price": "Float64", "share": "Float64"}),
    "Float32": lambda frame: frame.astype({"price": "Float32", "share": "Float32"}),
    "int32": lambda frame: frame.astype({"count": "int32", "kind": "int8"}),
    "Int64": lambda frame: frame.astype({"count": "Int64", "kind": "Int64"}),
    "whole floats": lambda frame: frame.astype({"count": "float32", "kind": "float64"}),
    "Decimal": lambda frame: frame.assign(
        price=[decimal.Decimal(f"{value:.3f}") for value in frame.price],
        kind=[decimal.Decimal(int(value)) for value in frame.kind],
    ),
    "Decimal with zeros": lambda frame: frame.assign(share=[decimal.Decimal(f"{v:.6f}") for v in frame.share]),
    "objects": lambda frame: frame.astype(object),
    "categories": lambda frame: frame.astype({"share": "category", "kind": "category"}),
}


@pytest.mark.parametrize(
    "name, dtype",
    cases(
        ("german", "Decimal"),
        further=[("german", dtype) for dtype in FRAMES] + [("plain", "float32"), ("plain", "Decimal")],
    ),
)
def test_the_numbers_of_a_frame_are_numbers(runs, expected, name, dtype):
    predicted = lockstep.Run(runs[name]).predict(FRAMES[dtype](numbers()), probabilities=True)
    assert predicted.to_dict("records") == expected


def test_texts_of_a_frame_are_read_as_the_columns_of_the_file(runs, expected, capfd):
    """The lines that tell how the frame is read name no file of ours."""
    texts = pandas.read_csv(runs["german"].with_suffix(".csv"), sep=";", dtype=str)
    run = lockstep.Run(runs["german"])
    assert run.predict(texts, probabilities=True).to_dict("records") == expected
    told = capfd.readouterr().err
    assert "warning: the frame: column 1 (price): " in told and "/" not in told
    with pytest.raises(lockstep.LockstepError, match=r"^the frame:2: column 1 \(price\): \"x\" is no finite number"):
        run.predict(texts.assign(price="x"))


@pytest.mark.all_tier("spelling_test has a frame with truth values")
def test_truth_values_of_a_frame_are_1_and_0(tmp_path):
    frame = numbers().assign(share=lambda f: f.price > 5000, label=lambda f: labels(f))
    run = lockstep.Run(trained(tmp_path, "run", frame)[0])
    of_file = run.predict(tmp_path / "run.csv", probabilities=True)
    for dtype in ("boolean", "int8"):
        assert run.predict(frame.astype({"share": dtype}), probabilities=True).to_dict("records") == of_file, dtype


@pytest.fixture(scope="module")
def array_run(tmp_path_factory):
    """Returns an array of numbers, and a run that was trained on their German spelling in a file without a header."""
    folder = tmp_path_factory.mktemp("array")
    values = numpy.random.default_rng(1).integers(1000, 9999, (40, 2)) / 1000
    rows = [[german(value) for value in row] + [i % 2] for i, row in enumerate(values.tolist())]
    with open(folder / "t.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["1.000,5", "2.000,5", 0], *rows])
    config = write_config(
        folder,
        f"""data {{ train: "{folder}/t.csv" csv {{ delimiter: ";" scaling: STANDARD }} }}
        model {{ mlp {{ hidden: 4 }} }} epochs: 1 global_batch: 20""",
    )
    assert train(config, folder / "run").status == DONE
    run = lockstep.Run(folder / "run")
    return values, run, [row["probability_0"] for row in run.predict(folder / "t.csv", probabilities=True)[1:]]


@pytest.mark.parametrize("dtype, tolerance", [("object", 0), ("float32", 0), ("float64", 0), ("float16", 1e-3)])
@pytest.mark.all_tier("a frame's numbers are written alike")
def test_the_numbers_of_an_array_are_numbers(array_run, dtype, tolerance):
    values, run, of_file = array_run
    of_array = [row["probability_0"] for row in run.predict(values.astype(dtype), probabilities=True)]
    assert of_array == pytest.approx(of_file, abs=tolerance)


def test_lines_on_standard_input_name_no_file_of_ours(runs):
    text = runs["german"].with_suffix(".csv").read_text()
    run = Run(["predict", runs["german"], "--input", "-", "--output", "-"], input=text)
    assert run.status == DONE and "warning: standard input: column 1 (price): " in run.err, run


@pytest.mark.all_tier("warnings about standard input name it alike")
def test_errors_on_standard_input_name_no_file_of_ours(runs):
    text = runs["german"].with_suffix(".csv").read_text()
    expect_error(
        Run(["predict", runs["german"], "--input", "-", "--output", "-"], input=text.replace(",", "x", 1)),
        DATA,
        "standard input:2: column 1 (price): ",
    )


DELIMITERS = {"semicolon": ";", "tab": "\t", "bar": "|", "comma": ","}


@pytest.mark.parametrize(
    "name, delimiter",
    cases(
        ("german", "bar"),
        further=[("plain", "semicolon"), ("plain", "comma"), ("plain", "tab"), ("german", "comma")],
    ),
)
def test_a_file_is_read_with_the_delimiter_that_it_has(runs, expected, tmp_path, name, delimiter):
    frame, own = numbers(), {"plain": "comma", "german": "semicolon"}[name]
    sign = DELIMITERS[delimiter]
    path = write(tmp_path / "test.csv", frame[frame.columns[::-1]], sign, {"plain": str, "german": german}[name])
    output = tmp_path / "predictions.csv"
    run = Run(["predict", runs[name], "--input", path, "--output", output, "--id", "id", "--keep", "kind"])
    assert run.status == DONE, run
    told = f"test.csv: read with a {delimiter} between cells, where the training file has a {own}"
    assert (told in run.err) == (delimiter != own)
    rows = rows_of(output)
    assert [int(row["label"]) for row in rows] == [row["label"] for row in expected]
    spelled = pandas.read_csv(path, sep=sign, dtype=str)
    assert [row["id"] for row in rows] == spelled.id.tolist()
    assert [row["kind"] for row in rows] == spelled.kind.tolist()


def test_files_without_a_header_are_read_with_the_delimiter_that_they_have(tmp_path):
    rows = [[i % 7, (i * 3) % 5, i % 2] for i in range(40)]
    for name, sign in (("t", ","), ("v", ";"), ("w", "\t")):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            csv.writer(file, delimiter=sign).writerows(rows)
    config = write_config(
        tmp_path,
        f"""data {{ train: ["{tmp_path}/t.csv", "{tmp_path}/w.csv"] validation: "{tmp_path}/v.csv" csv {{ }} }}
        model {{ mlp {{ hidden: 4 }} }} epochs: 1 global_batch: 20""",
    )
    run = train(config, tmp_path / "run")
    assert run.status == DONE and "80 samples, 40 held back" in run.out, run
    assert re.findall(r"(\w)\.csv: read with a (\w+) between", run.err) == [("w", "tab"), ("v", "semicolon")]


def test_a_delimiter_that_the_config_lacks_is_named(tmp_path):
    path = write(tmp_path / "t.csv", numbers().assign(label=0), ";")
    expect_error(
        train(config_of(tmp_path, path, 'label: "label" ignore: "id"'), tmp_path / "run"),
        DATA,
        "t.csv:1: only 1 column",
        'set data.csv.delimiter: ";"',
    )


SUBMISSIONS = {
    # name: (delimiter, the cells to fill in)
    "classes": (";", ["0", "1"]),
    "classes after tabs": ("\t", ["0", "1"]),
    "probabilities": (";", ["0.5"]),
    "probabilities with a comma": (";", ["0,5"]),
    "probabilities with a comma in quotes": (",", ["0,5"]),
    "ids with a comma": (";", ["0"]),
}


@pytest.mark.parametrize(
    "name", cases("probabilities with a comma", further=SUBMISSIONS)
)
def test_a_submission_is_written_as_its_sample_is(runs, expected, tmp_path, name):
    delimiter, cells = SUBMISSIONS[name]
    ids = [f"{200 + i},0" if name.startswith("ids") else str(200 + i) for i in reversed(range(ROWS))]
    sample = pandas.DataFrame({"id": ids, "label": [cells[i % len(cells)] for i in range(ROWS)]})
    write(tmp_path / "sample.csv", sample, delimiter)
    sent = tmp_path / "sent.csv"
    rows = lockstep.Run(runs["plain"]).predict(numbers(), submission=tmp_path / "sample.csv", output=sent)
    table = pandas.read_csv(sent, sep=delimiter, decimal="," if "," in cells[0] else ".", dtype={"id": str})
    assert table.columns.tolist() == ["id", "label"] and table.id.tolist() == ids
    key = "label" if cells[0] == "0" else "probability_1"
    assert table.label.tolist() == [row[key] for row in reversed(expected)] == rows.label.tolist()


LABELS = {
    # name: (delimiter, the texts of class 0 and class 1)
    "decimal comma": (";", ["0,0", "1,0"]),
    "decimal comma in quotes": (",", ["0,0", "1,00"]),
    "decimal point": (",", ["0.0", "1.0"]),
    "truth values": (",", ["False", "TRUE"]),
    "a sign": (",", ["-0", "+1"]),
    "spaces": (",", [" 0 ", "1 "]),
    "exponents": (",", ["0e0", "1E0"]),
}


@pytest.mark.parametrize(
    "name, by_name",
    cases(
        ("decimal comma", True),
        further=[(name, False) for name in LABELS] + [(name, True) for name in LABELS if name != "a sign"],
    ),
)
def test_class_labels_are_read_as_numbers_are(runs, expected, tmp_path, name, by_name):
    delimiter, texts = LABELS[name]
    frame = numbers()
    frame["label"] = [texts[value] for value in labels(frame)]
    options = f'label: "label" category: "kind" label_names: {str(by_name).lower()}'
    folder, _ = trained(tmp_path, "run", frame, delimiter, csv_options=options)
    assert step_losses(folder) == step_losses(runs["plain"])
    # The labels of another file are compared by their values, too.
    metrics = lockstep.Run(folder).evaluate(runs["plain"].with_suffix(".csv"))
    right = [row["label"] == label for row, label in zip(expected, labels(numbers()))]
    assert metrics["samples"] == ROWS and metrics["accuracy"] == pytest.approx(sum(right) / ROWS)
    made = Run(["new", tmp_path / "run.csv", "--output", tmp_path / "new.pbtxt", "--label", "label"])
    assert made.status == DONE and "2 classes of label" in made.out, made
    assert ("label_names: true" in (tmp_path / "new.pbtxt").read_text()) == (name == "truth values")


@pytest.mark.all_tier("csv_test.cc has such labels")
def test_a_label_with_a_fraction_is_a_number(tmp_path):
    frame = numbers().assign(label=lambda f: f.share * 3 + 0.5)
    data = write(tmp_path / "t.csv", frame, ";", german)
    made = Run(["new", data, "--output", tmp_path / "t.pbtxt", "--label", "label"])
    assert made.status == DONE and "numbers of label" in made.out, made
    run = train(tmp_path / "t.pbtxt", tmp_path / "run", *sets("epochs=1"))
    assert run.status == DONE, run
    mean = float(re.search(r"target_mean: (\S+)", (tmp_path / "run/config.pbtxt").read_text())[1])
    rows = pandas.read_csv(data, sep=";", decimal=",", thousands=".")
    assert rows.label.min() <= mean <= rows.label.max()


CURRENCIES = {
    # name of the column: (cells, what is told)
    "two": (["$5", "€6"], "amounts in $, € are taken alike"),
    "three": (["$5", "6 EUR", "GBP 7"], "amounts in $, EUR, GBP are taken alike"),
    "spelled": (["$5", "US$ 6", "7 USD", "8"], None),
    "percent": (["5%", "6%"], None),
    "some": (["5%", "6", "7"], "of 60 numbers have a percent sign"),
}


def test_several_currencies_are_told(tmp_path):
    columns = {name: [cells[i % len(cells)] for i in range(ROWS)] for name, (cells, _) in CURRENCIES.items()}
    _, run = trained(tmp_path, "run", numbers().assign(**columns, label=numpy.arange(ROWS) % 2))
    made = Run(["new", tmp_path / "run.csv", "--output", tmp_path / "new.pbtxt"])
    assert made.status == DONE, made
    comments = re.sub(r"\n *# ", " ", (tmp_path / "new.pbtxt").read_text())
    for name, (_, told) in CURRENCIES.items():
        for text, start in [(run.err, f"({name}): "), (made.out, f'"{name}" holds '), (comments, f'"{name}" holds ')]:
            line = text[text.index(start) :].split("\n")[0]
            if text is comments:  # comments that follow each other are one line here
                line = line[: line.find('" holds ', len(start))]
            assert ("alike" in line or "have a percent sign" in line) == bool(told), line
            assert (told or "") in line


def held_back_table(folder):
    """Writes a table of which one row in eight has a city of its own."""
    frame = numbers(80).assign(city=lambda f: [f"c{i}" if i % 8 == 0 else "ab"[i % 2] for i in f.index])
    return write(folder / "t.csv", frame.assign(label=lambda f: f.index % 2))


@pytest.mark.all_tier("folds hold rows back, too")
def test_texts_of_rows_held_back_are_counted(tmp_path):
    data = held_back_table(tmp_path)
    options = 'label: "label" ignore: "id" category: ["kind", "city"]'
    config = config_of(tmp_path, data, options, "validation_fraction: 0.25")
    run = train(config, tmp_path / "run")
    assert run.status == DONE, run
    found = re.search(r't.csv: (\d+) of 20 rows held back hold texts that no .* had, such as "(c\d+)"', run.err)
    held_back = {row["index"] for row in rows_of(predicted_held_back(tmp_path / "run"))}
    assert int(found[1]) == sum(int(index) % 8 == 0 for index in held_back)
    assert found[2][1:] in held_back


def predicted_held_back(run):
    output = run.with_name("held_back.csv")
    assert Run(["predict", run, "--held-back", "--output", output]).status == DONE
    return output


@pytest.fixture(scope="module")
def folds(tmp_path_factory):
    """Returns the command that trained two folds, their folder, their table, and {fold: its number of rows with a city of
    their own}."""
    folder = tmp_path_factory.mktemp("folds")
    frame = pandas.read_csv(held_back_table(folder)).assign(price=lambda f: [german(v) for v in f.price])
    data = write(folder / "t.csv", frame, ";")
    options = 'delimiter: ";" label: "label" ignore: "id" category: ["kind", "city"]'
    config = config_of(folder, data, options, epochs=1)
    run = Run(["train", config, "--folds", 2, "--set", f"run_dir={folder / 'run'}"])
    assert run.status == DONE, run
    unknown = {}
    for row in rows_of(folder / "run/held_back.csv"):
        unknown[row["fold"]] = unknown.get(row["fold"], 0) + (int(row["index"]) % 8 == 0)
    return run, folder / "run", data, unknown


def test_folds_tell_each_line_once(folds):
    run, _, _, unknown = folds
    assert run.err.count(" is read as ") == 1 and "t.csv: column 1 (price): " in run.err
    told = re.findall(r"t.csv: (\d+) of 40 rows that fold (\d) holds back hold texts that no", run.err)
    assert {fold: int(count) for count, fold in told} == unknown and len(told) == 2


@pytest.mark.parametrize("command", cases("evaluate", further=["predict"]))
def test_each_line_of_folds_says_which_they_are(folds, tmp_path, command):
    _, folder, data, unknown = folds
    output = ["--output", tmp_path / "p.csv"] if command == "predict" else []
    run = Run([command, folder, "--input", data, *output])
    assert run.status == DONE and run.err.count(" is read as ") == 1, run
    lines = re.findall(r"(folds? [\d, ]+: )?[^\s]*t.csv: (\d+) of 80 rows hold texts that", run.err)
    told = [(fold, int(count)) for which, count in lines for fold in re.findall(r"\d", which) or unknown]
    assert sorted(told) == sorted(unknown.items())


CODES = {
    # name of the column: (cells, the field of the config that takes it; None: it is a number)
    "places": (["01234", "00501", "90210"], "category"),
    "months": (["01", "02", "12"], "category"),
    "tickets": ([f"{i:05d}" for i in numpy.random.default_rng(5).permutation(80)], "ignore"),
    "nonzero": (["11234", "10501", "90210"], None),
    "widths": (["0", "10", "200"], None),
    "fractions": (["01.5", "00.5", "12.5"], None),
    "digits": (["0", "1", "2"], None),
}


def test_numbers_with_leading_zeros_are_names(tmp_path):
    columns = {name: [cells[i % len(cells)] for i in range(80)] for name, (cells, _) in CODES.items()}
    data = write(tmp_path / "t.csv", numbers(80).assign(**columns, label=numpy.arange(80) % 2))
    made = Run(["new", data, "--output", tmp_path / "t.pbtxt"])
    assert made.status == DONE, made
    text = (tmp_path / "t.pbtxt").read_text()
    for name, (_, field) in CODES.items():
        found = re.search(rf'((?: *#.*\n)*) *(category|ignore): "{name}"(.*)', text)
        assert (found and found[2]) == field, text
        if field:
            assert "some begin with a zero" in re.sub(r"\s*\n\s*#", "", found[1]) + found[3]


RESPELLED = {
    # name: (delimiter, the spelling, why the run does not go on; None: it goes on)
    "with fractions": (",", str, None),
    "german": (";", german, None),
    "other values": (",", lambda value: str(value).replace("5", "6"), "the features of the training samples have changed"),
    "in another order": (
        ",",
        lambda value: f"{value:06.1f}" if value in (1, 2, 10) else str(value),
        "because the same values are spelled otherwise and so are in another order (02 is before 10, and 2 is behind it)",
    ),
}


@pytest.mark.parametrize("name", cases("german", "in another order", further=RESPELLED))
def test_a_run_goes_on_with_its_file_in_another_spelling(runs, tmp_path, name):
    sign, spell, why = RESPELLED[name]
    shutil.copytree(runs["plain"], tmp_path / "run")
    frame = numbers().assign(label=lambda frame: labels(frame))
    spelled = frame.astype({"kind": float, "label": float, "count": float})
    data = write(tmp_path / "t.csv", spelled, sign, spell)
    options = f'delimiter: "{sign}" ignore: "id" label: "label" category: "kind"'
    run = train(config_of(tmp_path, data, options, epochs=5), tmp_path / "run")
    if why is None:
        assert run.status == DONE, run
    else:
        expect_error(run, USAGE, why)


OPEN = {
    # name: (columns of cells, delimiter, pandas' arguments)
    "points, with a comma elsewhere": (
        {"a": ["5.123", "6.250"], "b": ["0,5", "1,5"]},
        ";",
        {"decimal": ",", "thousands": "."},
    ),
    "commas, with a comma elsewhere": ({"a": ["5,123", "950"], "b": ["0,5", "1,5"]}, ";", {"decimal": ","}),
    "commas, with a point elsewhere": ({"a": ["5,123", "6,250"], "b": ["0.5", "1.5"]}, ";", {"thousands": ","}),
    "points alone": ({"a": ["5.123", "6.250"], "b": ["2", "1"]}, ";", {}),
}


@pytest.mark.parametrize(
    "name", cases("points, with a comma elsewhere", further=OPEN)
)
def test_a_file_has_one_decimal_sign(tmp_path, name):
    columns, sign, options = OPEN[name]
    frame = pandas.DataFrame({key: [cells[i % 2] for i in range(40)] for key, cells in columns.items()})
    folder, run = trained(tmp_path, "run", frame.assign(label=numpy.arange(40) % 2), sign, csv_options='label: "label"')
    means = dict(re.findall(r'name: "(.*)"\s+mean: (\S+)', (folder / "config.pbtxt").read_text()))
    table = pandas.read_csv(tmp_path / "run.csv", sep=sign, **options)
    for column in columns:
        assert float(means[column]) == pytest.approx(table[column].mean(), rel=1e-12)
    assert ("(a): " in run.err) == (name != "points alone")


@pytest.mark.all_tier("new_test.cc has such columns")
def test_new_takes_truth_values_among_numbers_for_numbers_as_training_does(tmp_path):
    cells = ["TRUE", "true", "False", "1", "0"]
    frame = numbers().assign(share=[cells[i % 5] for i in range(ROWS)], label=numpy.arange(ROWS) % 2)
    made = Run(["new", write(tmp_path / "t.csv", frame), "--output", tmp_path / "t.pbtxt"])
    assert made.status == DONE and '"share"' not in (tmp_path / "t.pbtxt").read_text(), made
    run = train(tmp_path / "t.pbtxt", tmp_path / "run", *sets("epochs=1"))
    assert run.status == DONE, run


@pytest.mark.all_tier("csv_spelling_test.cc has such columns")
def test_amounts_of_several_currencies_are_several_categories(tmp_path):
    frame = numbers().assign(kind=[["$5", "€5", "5 USD"][i % 3] for i in range(ROWS)], label=numpy.arange(ROWS) % 2)
    folder, _ = trained(tmp_path, "run", frame)
    found = re.findall(r'^ +category: "([^k].*)"', (folder / "config.pbtxt").read_text(), re.M)
    assert found == ["$5", "5 USD", "\\342\\202\\2545"]
