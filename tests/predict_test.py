"""Tests the output of `lockstep predict` for tables: CSV, lines of JSON, NumPy arrays, pipes, and a competition's
sample submission."""

import csv
import io
import json

import numpy as np
import pytest

from harness import DATA, DONE, USAGE, Run, expect_error, predict, rows_of, skip_without_gpus, train, write_config, write_table

NAMES = ["cold, wet", "mild", "hot"]
HEADER = ["Id", "a", "b", "Kind", "Note"]


def table(count, seed, labelled):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 2))
    kinds = np.clip(np.round(x[:, 0] + 1), 0, 2).astype(int)
    rows = [[f"{900 + i:05}", f"{a:.6f}", f"{b:.6f}", NAMES[k], f'say "{i}", twice'] for i, ((a, b), k) in enumerate(zip(x, kinds))]
    return [row if labelled else row[:3] + row[4:] for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with a trained run of three classes on a table, and test.csv without labels."""
    path = tmp_path_factory.mktemp("predict")
    write_table(path / "train.csv", table(200, 1, True), HEADER)
    write_table(path / "test.csv", table(7, 2, False), [*HEADER[:3], HEADER[4]])
    text = """global_batch: 20 epochs: 20 data { train: "train.csv" csv { header: true label: "Kind" label_names: true
        ignore: "Id" ignore: "Note" } } model { name: "mlp" mlp { } } optimizer { lr: 0.1 }"""
    run = train(write_config(path, text), path / "run")
    assert run.status == DONE, run
    return path


def predicted(folder, *words, **options):
    run = Run(["predict", folder / "run", "--input", folder / "test.csv", *words], cwd=folder, **options)
    assert run.status == DONE, run
    return run


def refused(folder, status, *parts, words=()):
    run = Run(["predict", folder / "run", "--input", folder / "test.csv", *words], cwd=folder)
    expect_error(run, status, *parts)


def test_a_column_for_each_class(folder):
    predicted(folder, "--output", "usual.csv")
    predicted(folder, "--output", "all.csv", "--probabilities")
    usual, every = rows_of(folder / "usual.csv"), rows_of(folder / "all.csv")
    assert list(usual[0]) == ["index", "label", "probability"]
    assert list(every[0]) == ["index", "label", *sorted(NAMES)]
    for one, all_of in zip(usual, every):
        shares = {name: float(all_of[name]) for name in NAMES}
        assert sum(shares.values()) == pytest.approx(1, abs=2e-6)
        assert max(shares, key=shares.get) == one["label"] == all_of["label"]
        assert all_of[one["label"]] == one["probability"]
    predicted(folder, "--output", "all.npy")
    array = np.load(folder / "all.npy")
    assert array.dtype == np.float32 and array.shape == (7, 3)
    np.testing.assert_allclose(array, [[float(row[name]) for name in sorted(NAMES)] for row in every], atol=1e-6)


@pytest.mark.parametrize("ranks", [None, 2])
def test_names_of_samples_and_columns_of_the_input(ranks, folder):
    skip_without_gpus(ranks)
    predicted(folder, "--output", "named.csv", "--id", "Id", "--keep", "Note", "b", ranks=ranks)
    rows, inputs = rows_of(folder / "named.csv"), rows_of(folder / "test.csv")
    assert list(rows[0]) == ["Id", "Note", "b", "label", "probability"]
    for row, given in zip(rows, inputs, strict=True):
        assert [row[name] for name in ("Id", "Note", "b")] == [given[name] for name in ("Id", "Note", "b")]


def test_lines_of_json(folder):
    predicted(folder, "--output", "named.csv", "--id", "Id", "--keep", "Note", "b")
    predicted(folder, "--output", "named.jsonl", "--id", "Id", "--keep", "Note", "b")
    lines = [json.loads(line) for line in (folder / "named.jsonl").read_text().split("\n")[:-1]]
    for line, row in zip(lines, rows_of(folder / "named.csv"), strict=True):
        # An id with leading zeros stays a string.
        assert line == row | {"b": float(row["b"]), "probability": float(row["probability"])}


# The classes have the names of columns that `predict` writes, and names that end in each other's.
CLASH = ["label", "dog", "z_dog", "z_z_dog", "probability_label"]
CLASH_HEADER = ["index", "label", "probability", "fold", "dog", "y"]


@pytest.fixture(scope="module")
def clash(tmp_path_factory):
    """Returns a folder with a trained run whose classes are CLASH, and test.csv with the columns CLASH_HEADER."""
    path = tmp_path_factory.mktemp("clash")
    random = np.random.default_rng(5)
    rows = [[i, *(f"{v:.5f}" for v in random.normal(size=4)), CLASH[i % len(CLASH)]] for i in range(100)]
    write_table(path / "train.csv", rows, CLASH_HEADER)
    write_table(path / "test.csv", rows[:9], CLASH_HEADER)
    text = """global_batch: 20 epochs: 2 data { train: "train.csv" validation_fraction: 0.2 csv { header: true label: "y"
        label_names: true ignore: "index" } } model { name: "mlp" mlp { } }"""
    assert train(write_config(path, text), path / "run").status == DONE
    return path


def unique(pairs):
    """Makes a dict of a JSON object's keys and values, and checks that no key is there twice."""
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


@pytest.mark.parametrize(
    "words, header",
    [
        (["--keep", "label"], ["index", "input_label", "label", "probability"]),
        (["--keep", "probability", "label"], ["index", "input_probability", "input_label", "label", "probability"]),
        (["--keep", "index", "y"], ["index", "input_index", "y", "label", "probability"]),
        (["--keep", "y", "y", "fold"], ["index", "y", "fold", "label", "probability"]),
        (["--id", "label"], ["input_label", "label", "probability"]),
        (["--id", "y", "--keep", "y"], ["y", "label", "probability"]),
        (["--probabilities"], ["index", "label", "dog", "probability_probability_label", "probability_label", "z_dog", "z_z_dog"]),
        (["--keep", "dog", "label", "--probabilities"], ["index", "input_dog", "input_label", "label", "dog", None, None, "z_dog", "z_z_dog"]),
    ],
)
def test_each_name_is_that_of_one_column(words, header, clash):
    for output in ("names.csv", "names.jsonl"):
        run = Run(["predict", "run", "--input", "test.csv", "--output", output, *words], cwd=clash)
        assert run.status == DONE, run
    with open(clash / "names.csv", newline="") as file:
        names, *rows = csv.reader(file)
    assert len(set(names)) == len(names), names
    assert len(names) == len(header) and all(given in (None, name) for given, name in zip(header, names)), names
    lines = [json.loads(line, object_pairs_hook=unique) for line in (clash / "names.jsonl").read_text().split("\n")[:-1]]
    assert [list(line) for line in lines] == [names] * 9
    for row, given in zip(rows, rows_of(clash / "test.csv"), strict=True):
        for name, cell in zip(names, row):
            if name.startswith("input_"):
                assert cell == given[name.removeprefix("input_")]


@pytest.mark.parametrize("prefix", ["", "p_", "z_", "Status_dog_"])
@pytest.mark.parametrize("order", [1, -1])
def test_names_of_classes_that_end_alike(prefix, order, clash):
    with open(clash / "all.csv", "w") as out:
        out.write(Run(["predict", "run", "--input", "test.csv", "--output", "-", "--id", "index", "--probabilities"], cwd=clash).out)
    with open(clash / "all.csv", newline="") as file:
        _, *known = csv.reader(file)
    classes = CLASH[::order]
    rows = [[row[0], *["0.2"] * len(classes)] for row in known]
    write_table(clash / "sample.csv", rows, ["index", *(prefix + name for name in classes)])
    run = Run(["predict", "run", "--input", "test.csv", "--submission", "sample.csv", "--output", "sent.csv"], cwd=clash)
    assert run.status == DONE, run
    for sent, row in zip(rows_of(clash / "sent.csv"), known, strict=True):
        shares = dict(zip(sorted(CLASH), row[2:]))  # after the id and the label
        assert [sent[prefix + name] for name in classes] == [shares[name] for name in classes]


def test_a_column_of_probabilities_for_no_class(clash):
    write_table(clash / "sample.csv", [[i, *["0.2"] * 5] for i in range(9)], ["index", "p_dog", "q_dog", "label", "z_dog", "z_z_dog"])
    run = Run(["predict", "run", "--input", "test.csv", "--submission", "sample.csv"], cwd=clash)
    expect_error(run, DATA, 'sample.csv: columns "p_dog" and "q_dog" are both for "dog"')


def test_pipes(folder):
    predicted(folder, "--output", "named.csv", "--id", "Id")
    words = ["predict", folder / "run", "--input", "-", "--output", "-", "--id", "Id"]
    run = Run(words, input=(folder / "test.csv").read_text(), cwd=folder)
    assert run.status == DONE and run.out == (folder / "named.csv").read_text(), run
    assert "standard output: 7 predictions" in run.err
    run = Run([*words, "--format", "jsonl"], input=(folder / "test.csv").read_text(), cwd=folder)
    assert len([json.loads(line) for line in run.out.split("\n")[:-1]]) == 7
    run = Run(words, ranks=2, input="", cwd=folder)
    expect_error(run, USAGE, "--input -: one rank reads standard input")


def sample(folder, header, cells, ids=None):
    """Writes a sample submission with the ids in reverse order; `cells` are the cells of each row after the id."""
    ids = ids or [row["Id"] for row in reversed(rows_of(folder / "test.csv"))]
    write_table(folder / "sample.csv", [[i, *cells] for i in ids], header)
    return folder / "sample.csv"


def test_a_submission_of_classes(folder):
    predicted(folder, "--output", "named.csv", "--id", "Id")
    label_of = {row["Id"]: row["label"] for row in rows_of(folder / "named.csv")}
    run = predicted(folder, "--submission", sample(folder, ["Id", "Weather"], ["mild"]), "--output", "sent.csv")
    assert "sent.csv: 7 predictions (Weather: label)" in run.out
    sent = rows_of(folder / "sent.csv")
    assert sent == [{"Id": i, "Weather": label_of[i]} for i in reversed(label_of)]


def test_a_submission_of_probabilities(folder):
    predicted(folder, "--output", "all.csv", "--id", "Id", "--probabilities")
    known = {row["Id"]: row for row in rows_of(folder / "all.csv")}
    header = ["Id", "Status_mild", "hot", "Status_cold, wet"]
    predicted(folder, "--submission", sample(folder, header, [0.3, 0.3, 0.4]), "--output", "sent.csv")
    for row in rows_of(folder / "sent.csv"):
        assert list(row) == header
        assert [row[name] for name in header[1:]] == [known[row["Id"]][name] for name in ("mild", "hot", "cold, wet")]


@pytest.mark.parametrize("cell, words", [("0.5", ()), ("0", ("--probabilities",)), ("0", ())])
def test_a_submission_of_two_classes(cell, words, tmp_path):
    """Checks that the submission has the class if the sample has whole numbers, and the probability of class 1 if the
    sample has fractions or `predict` has --probabilities."""
    x = np.random.default_rng(1).normal(size=(80, 2))
    rows = [[i, f"{a:.6f}", f"{b:.6f}", int(a > 0)] for i, (a, b) in enumerate(x)]
    write_table(tmp_path / "train.csv", rows, ["id", "a", "b", "y"])
    write_table(tmp_path / "test.csv", [row[:3] for row in rows], ["id", "a", "b"])
    text = """global_batch: 20 epochs: 10 data { train: "train.csv" csv { header: true label: "y" ignore: "id" } }
        model { name: "mlp" mlp { } }"""
    assert train(write_config(tmp_path, text), tmp_path / "run").status == DONE
    write_table(tmp_path / "sample.csv", [[i, cell] for i in range(80)], ["id", "y"])
    predicted(tmp_path, "--submission", "sample.csv", "--output", "sent.csv", *words)
    every = predict(tmp_path / "run", tmp_path / "test.csv")
    for row, known in zip(rows_of(tmp_path / "sent.csv"), every, strict=True):
        if cell == "0" and not words:
            assert row["y"] == known["label"]
        else:
            share = float(known["probability"])
            assert float(row["y"]) == pytest.approx(share if known["label"] == "1" else 1 - share, abs=2e-6)


def test_a_submission_of_numbers_and_of_labels(tmp_path):
    x = np.random.default_rng(1).normal(size=(60, 2))
    rows = [[f"r{i}", f"{a:.6f}", f"{b:.6f}", int(a > 0), int(b > 0)] for i, (a, b) in enumerate(x)]
    write_table(tmp_path / "train.csv", rows, ["id", "a", "b", "up", "left"])
    write_table(tmp_path / "test.csv", [row[:3] for row in rows], ["id", "a", "b"])
    write_table(tmp_path / "sample.csv", [[row[0], "0", "0"] for row in rows], ["id", "left", "up"])
    for task, as_known in (("REGRESSION", lambda v: v), ("MULTI_LABEL", lambda v: str(int(float(v) >= 0.5)))):
        text = f"""global_batch: 20 epochs: 5 run_dir: "{tmp_path}/{task}" model {{ name: "mlp" mlp {{ }} }} data {{ train: "train.csv"
            task: {task} csv {{ header: true label: "up" label: "left" ignore: "id" }} }}"""
        assert Run(["train", write_config(tmp_path, text)], cwd=tmp_path).status == DONE
        words = ["--input", "test.csv", "--submission", "sample.csv", "--output", "sent.csv"]
        assert Run(["predict", tmp_path / task, *words], cwd=tmp_path).status == DONE
        known = predict(tmp_path / task, tmp_path / "test.csv")
        what = "value" if task == "REGRESSION" else "probability"
        for row, was in zip(rows_of(tmp_path / "sent.csv"), known, strict=True):
            assert [row["up"], row["left"]] == [as_known(was[f"{what}_0"]), as_known(was[f"{what}_1"])]


def test_samples_that_do_not_fit(folder):
    ids = [row["Id"] for row in rows_of(folder / "test.csv")]
    for header, cells, some, part in (
        (["Id", "Weather"], ["warm"], ids, 'column "Weather" holds "warm", which is none of the run\'s classes (cold, wet, hot, mild)'),
        (["Id", "Weather"], ["0.5"], ids, 'column "Weather" alone cannot hold the probabilities of 3 classes'),
        (["Id", "hot", "mild"], [0, 0], ids, "2 columns to fill in, and the run predicts 3"),
        (["Id", "hot", "mild", "code"], [0, 0, 0], ids, 'column "code" is none of what the run predicts'),
        (["Id", "hot", "mild", "x_hot"], [0, 0, 0], ids, 'columns "hot" and "x_hot" are both for "hot"'),
        (["Id", "Weather"], ["hot"], [*ids, "7"], 'Id "7" is not among the samples of --input'),
        (["Id", "Weather"], ["hot"], [*ids, ids[0]], f'Id "{ids[0]}" is there twice'),
        (["Id", "Weather"], ["hot"], ids[1:], f'lacks Id "{ids[0]}", which --input has'),
        (["Idd", "Weather"], ["hot"], ids, '--submission: the header has no column "Idd"; did you mean "Id"?'),
        (["Id"], [], ids, "a column of ids and at least one to fill in"),
    ):
        refused(folder, DATA, part, words=["--submission", sample(folder, header, cells, some), "--output", "not.csv"])
    assert not (folder / "not.csv").exists()


@pytest.mark.parametrize(
    "words, part",
    [
        (["--id", "Idd"], '--id: the header has no column "Idd"; did you mean "Id"?'),
        (["--output", "x.npy", "--id", "Id"], "--id: an array holds numbers alone"),
        (["--submission", "test.csv", "--keep", "a"], "--keep: a submission has the sample's columns"),
        (["--submission", "test.csv", "--output", "x.jsonl"], "--submission: is written as CSV"),
        (["--submission", "nowhere.csv"], "nowhere.csv"),
        (["--format", "xml"], "--format"),
        (["--output", "x.csv.GZ"], "--output x.csv.GZ: predictions are not compressed: take .gz from the name"),
    ],
)
def test_mistakes_are_one_line(words, part, folder):
    run = Run(["predict", folder / "run", "--input", folder / "test.csv", *words], cwd=folder)
    assert run.status in (USAGE, DATA) and len(run.error_lines) == 1 and part in run.err, run


def test_an_id_that_looks_like_a_file_is_taken_whole(tmp_path):
    """Checks that the ids of a table must be given whole, although ids of images may lack the folder and the extension.
    The table's id column is called `file`, like the id column of predictions for images."""
    header = ["file", *HEADER[1:4]]
    rows = [[f"a/{i}.csv", *row[1:4]] for i, row in enumerate(table(60, 1, True))]
    write_table(tmp_path / "train.csv", rows, header)
    text = """global_batch: 20 epochs: 1 data { train: "train.csv" csv { header: true label: "Kind" label_names: true
        ignore: "file" } } model { name: "mlp" mlp { } }"""
    assert train(write_config(tmp_path, text), tmp_path / "run").status == DONE
    write_table(tmp_path / "test.csv", rows[:3], header)
    for ids, status in ((["a/0.csv", "a/1.csv", "a/2.csv"], DONE), (["0", "1", "2"], DATA)):
        write_table(tmp_path / "sample.csv", [[i, "hot"] for i in ids], ["file", "Weather"])
        words = ["--submission", tmp_path / "sample.csv", "--output", tmp_path / "sent.csv"]
        run = Run(["predict", tmp_path / "run", "--input", tmp_path / "test.csv", *words])
        assert run.status == status, run
    expect_error(run, DATA, 'file "0" is not among the samples of --input')


def test_csv_is_what_pythons_csv_reads(folder):
    predicted(folder, "--output", "named.csv", "--id", "Note")
    rows = list(csv.reader(io.StringIO((folder / "named.csv").read_text(), newline="")))
    assert [row[0] for row in rows[1:]] == [row["Note"] for row in rows_of(folder / "test.csv")]
