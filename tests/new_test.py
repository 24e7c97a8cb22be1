"""Tests `lockstep new`: for each kind of data it writes a config that trains unchanged, and for tables two more
commands give a submission. The choices of `new` are compared with the way in which the tables were made."""

import csv
import io
import json
import re
import struct
import zipfile

import noisy_tables
import numpy as np
import pandas
import pytest
from PIL import Image

from harness import (
    DATA,
    DEVICE,
    DONE,
    USAGE,
    Run,
    events,
    expect_error,
    predict,
    rows_of,
    sets,
    write_table,
)

RANDOM = np.random.default_rng(7)


def new(folder, *words):
    run = Run(["new", *words], cwd=folder)
    assert run.status == DONE, run
    return run.out, (folder / "train.pbtxt").read_text()


def train(folder, *assignments, epochs=1):
    """Trains with the config that `new` wrote. Only the epochs, the device and the fields in `assignments` are changed.
    """
    run = Run(["train", "train.pbtxt", *sets(f"epochs={epochs}", f"device={DEVICE}", *assignments)], cwd=folder)
    assert run.status == DONE, run
    return run


def next_commands(out):
    return [line.split() for line in re.findall(r"(?m)^  (lockstep .*)$", out)]


def field(config, name):
    """Returns the values of a field in the config's text, without their comments."""
    found = []
    for value in re.findall(rf"(?m)^ *{name}: (.*?)(?:  #.*)?$", config):
        found += re.findall(r'"((?:[^"\\]|\\.)*)"', value) or [value]
    return found


def passengers(count, first=1):
    """Returns rows of ids, names, numbers with gaps, and categories; the label follows from two of the columns."""
    rows = []
    for i in range(first, first + count):
        sex, age = RANDOM.choice(["male", "female"]), RANDOM.normal(30, 10)
        lives = int((sex == "female") + (age < 20) + RANDOM.normal(0, 0.3) > 0.5)
        shown = f"{age:.1f}" if i % 5 else ""
        grade = "?" if i % 10 == 0 else str(i % 4)
        rows.append([i, lives, f"Passenger, Number {i} of the ship", sex, shown, f"T{i * 7}", "Sea", grade, i % 3, f"2012-04-{i % 28 + 1:02}-{i}"])
    return rows


HEADER = ["PassengerId", "Survived", "Name", "Sex", "Age", "Ticket", "Place", "Grade", "Boat", "Day"]


@pytest.fixture(scope="module")
def titanic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("titanic")
    (folder / "titanic").mkdir()
    write_table(folder / "titanic/train.csv", passengers(150), HEADER)
    test = [row[:1] + row[2:8] + row[9:] for row in passengers(30, first=151)]
    test[3][2], test[4][3] = "", ""
    write_table(folder / "titanic/test.csv", test, HEADER[:1] + HEADER[2:8] + HEADER[9:])
    write_table(folder / "titanic/gender_submission.csv", [[row[0], 0] for row in test], HEADER[:2])
    return folder


def test_a_competition_in_three_commands(titanic):
    out, config = new(titanic, "titanic")
    assert 'train: "titanic/train.csv"' in config and field(config, "label") == ["Survived"]
    assert "what test.csv lacks and gender_submission.csv has" in config
    for name, reason in (
        ("PassengerId", "the first column of gender_submission.csv: it names the rows"),
        ("Name", "free text: 150 different texts in 150 rows"),
        ("Ticket", "150 different texts in 150 rows"),
        ("Place", "all rows have the same value, Sea"),
        ("Boat", "test.csv has no such column"),
        ("Day", "dates such as 2012-04-02-1: written as 2024-05-31 they could be learnt from"),
    ):
        assert f'ignore: "{name}"  # {reason}' in config
    assert field(config, "category") == ["Sex", "Grade"] and "30 of 150 rows have no Age" in config
    assert "mixes numbers and texts: " in out and '"?" in line 11 of train.csv' in out
    assert "label_names" not in config and field(config, "missing") == ["MEAN"]
    first, second = next_commands(out)
    assert first == ["lockstep", "train", "train.pbtxt", "--folds", "5"] and second[:3] == ["lockstep", "predict", "runs/train"]
    assert Run([*first[1:], *sets("epochs=10")], cwd=titanic).status == DONE
    assert json.loads(Run(["evaluate", "runs/train", "--json"], cwd=titanic).out)["auc"] > 0.7
    run = Run(second[1:], cwd=titanic)
    assert run.status == DONE and "30 predictions" in run.out, run
    sent, sample = rows_of(titanic / "submission.csv"), rows_of(titanic / "titanic/gender_submission.csv")
    assert [row["PassengerId"] for row in sent] == [row["PassengerId"] for row in sample]
    assert {row["Survived"] for row in sent} == {"0", "1"}


def test_dates_in_compressed_files(tmp_path):
    draw = np.random.default_rng(3)
    days = np.datetime64("2020-01-01") + draw.integers(0, 900, 120)
    rows = [[str(day), f"{x:.4f}", int(x + 0.5 * (i % 7 == 0) > 0)] for i, (day, x) in enumerate(zip(days, draw.normal(size=120)))]
    for name, archive_name, part in (("train", "train.zip", rows), ("test", "test.csv.zip", [row[:2] for row in rows[:20]])):
        write_table(tmp_path / f"{name}.csv", part, ["day", "x", "y"][: len(part[0])])
        with zipfile.ZipFile(tmp_path / archive_name, "w") as archive:
            archive.write(tmp_path / f"{name}.csv", f"{name}.csv")
        (tmp_path / f"{name}.csv").unlink()
    out, config = new(tmp_path, ".")
    assert field(config, "train") == ["train.zip"] and field(config, "date") == ["day"]
    assert "becomes the days since 1970, and the places in the year and the week" in config
    train(tmp_path)
    assert len(predict(tmp_path / "runs/train", tmp_path / "test.csv.zip")) == 20


def test_ids_that_rows_share_divide_the_folds(tmp_path):
    """Tests a table whose rows belong to customers: the id is no input, and no customer is in two folds. Common cities
    are categories, and all others are one."""
    draw = np.random.default_rng(5)
    rows = []
    for i in range(600):
        customer, x = i % 150, draw.normal()
        city = ["Bern", "Basel", f"Village {i}"][i % 3]
        rows.append([f"C{customer:04}", f"{x:.4f}", city, [3000, 4000, 8000 + i][i % 3], int(x + draw.normal() > 0)])
    write_table(tmp_path / "t.csv", rows, ["customer_id", "x", "city", "postal_code", "bought"])
    out, config = new(tmp_path, "t.csv")
    assert 'ignore: "customer_id"  # an id: 150 different values in 600 rows' in config
    assert 'folds { by: GROUP group: "customer_id" }' in config and "GROUP folds" in config
    assert "several rows have the same" in out
    assert field(config, "category") == ["city", "postal_code"] and field(config, "category_min_rows") == ["10"]
    run = Run(["train", "train.pbtxt", "--folds", "2", *sets("epochs=1", f"device={DEVICE}")], cwd=tmp_path)
    assert run.status == DONE, run
    fold_of = {}
    for row in rows_of(tmp_path / "runs/train/held_back.csv"):
        customer = rows[int(next(iter(row.values())))][0]
        assert fold_of.setdefault(customer, row["fold"]) == row["fold"]
    assert len(fold_of) == 150 and set(fold_of.values()) == {"0", "1"}
    (columns,) = {tuple(re.findall(r'category: "((?:Bern|Basel|Village)[^"]*)"', (tmp_path / f"runs/train/fold-{fold}/config.pbtxt").read_text())) for fold in range(2)}
    assert columns == ("Basel", "Bern")


# The AUC of scikit-learn's HistGradientBoostingClassifier (1.9.1, random_state=seed, categories by dtype), which has
# learnt the table of `rows` rows of a seed, on the table of 20,000 rows of seed + 1000.
GRADIENT_BOOSTING = {
    ("churn", 6000, 1): 0.7423,
    ("churn", 6000, 2): 0.7323,
    ("loans", 6000, 1): 0.7107,
    ("loans", 6000, 2): 0.6836,
    ("clicks", 10_000, 1): 0.7022,
    ("clicks", 10_000, 2): 0.7253,
}


@pytest.mark.parametrize("name, rows, seed", GRADIENT_BOOSTING)
@pytest.mark.all_tier("one noisy table stands for all", unless=lambda name, rows, seed: (name, rows, seed) == ("loans", 6000, 1))
def test_noise_is_not_learnt(name, rows, seed, tmp_path):
    """Tests tables with 7 % positive rows, most of whose labels are chance. The config is within 0.005 of gradient
    boosting, which knows all rows and no validation, and its log loss is below that of a constant."""
    for file, count, number in (("train", rows, seed), ("test", 20_000, seed + 1000)):
        columns, label = noisy_tables.TABLES[name](rows=count, seed=number)
        pandas.DataFrame(columns).to_csv(tmp_path / f"{file}.csv", index=False)
    new(tmp_path, "train.csv", "--label", label)
    run = Run(["train", "train.pbtxt", *sets(f"device={DEVICE}", f"seed={seed}")], cwd=tmp_path)
    assert run.status == DONE, run
    found = json.loads(Run(["evaluate", "runs/train", "--input", "test.csv", "--json"], cwd=tmp_path).out)
    share = float(np.mean(columns[label]))
    assert found["auc"] > GRADIENT_BOOSTING[name, rows, seed] - 0.005, found
    assert found["log_loss"] < -share * np.log(share) - (1 - share) * np.log(1 - share), found


def test_nothing_is_overwritten(titanic, tmp_path):
    (tmp_path / "train.pbtxt").write_text("mine")
    run = Run(["new", titanic / "titanic"], cwd=tmp_path)
    expect_error(run, USAGE, "train.pbtxt: the file exists: remove it, or write another one with --output FILE")
    assert (tmp_path / "train.pbtxt").read_text() == "mine"
    (tmp_path / "link.pbtxt").symlink_to("nowhere")
    expect_error(Run(["new", titanic / "titanic", "--output", "link.pbtxt"], cwd=tmp_path), USAGE, "link.pbtxt: the file exists")


def test_paths_count_from_the_configs_folder(titanic):
    run = Run(["new", "titanic", "--output", "titanic/own.pbtxt"], cwd=titanic)
    assert run.status == DONE and 'train: "train.csv"' in (titanic / "titanic/own.pbtxt").read_text()
    assert "lockstep train titanic/own.pbtxt" in run.out and "predict runs/own --input titanic/test.csv" in run.out


def test_numbers_of_a_great_unit(tmp_path):
    """Tests a table with semicolons, whose label is not the last column and has values far from 1. The run must save
    the scale of the labels."""
    x = RANDOM.normal(size=(200, 2))
    prices = 180_000 + 80_000 * x[:, 0]
    rows = [[f"{a:.5f}", f"{p:.2f}", f"{b:.5f}", i] for i, ((a, b), p) in enumerate(zip(x, prices))]
    with open(tmp_path / "houses.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["size", "price", "age", "lot"], *rows])
    out, config = new(tmp_path, "houses.csv", "--label", "price")
    assert field(config, "delimiter") == [";"] and field(config, "task") == ["REGRESSION"]
    assert 'ignore: "lot"  # it counts the rows' in config
    assert field(config, "standardize_targets") == ["true"]
    train(tmp_path, epochs=30)
    assert events(tmp_path / "runs/train", "done")[0]["val_r2"] > 0.9
    run = Run(["evaluate", "runs/train", "--json"], cwd=tmp_path)
    assert json.loads(run.out)["r2"] > 0.9, run


def test_several_labels_of_a_submission(tmp_path):
    x = RANDOM.normal(size=(80, 2))
    rows = [[f"r{i}", f"{a:.4f}", f"{b:.4f}", int(a > 0), int(b > 0)] for i, (a, b) in enumerate(x)]
    write_table(tmp_path / "train.csv", rows, ["id", "a", "b", "up", "left"])
    write_table(tmp_path / "test.csv", [row[:3] for row in rows[:9]], ["id", "a", "b"])
    write_table(tmp_path / "sample_submission.csv", [[row[0], 0.5, 0.5] for row in rows[:9]], ["id", "up", "left"])
    out, config = new(tmp_path, ".")
    assert field(config, "task") == ["MULTI_LABEL"] and field(config, "label") == ["up", "left"]
    train(tmp_path)
    assert Run(next_commands(out)[1][1:], cwd=tmp_path).status == DONE
    assert all(0 < float(row["up"]) < 1 for row in rows_of(tmp_path / "submission.csv"))


def test_a_table_without_a_header(tmp_path):
    rows = [[f"{a:.4f}", "same", f"{b:.4f}", ["cat", "dog", "owl"][i % 3]] for i, (a, b) in enumerate(RANDOM.normal(size=(60, 2)))]
    (tmp_path / "pets.csv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    out, config = new(tmp_path, "pets.csv")
    assert field(config, "header") == ["false"] and field(config, "label_column") == ["3"]
    assert 'delimiter: "\\t"' in config and field(config, "label_names") == ["true"]
    assert 'ignore: "1"  # all rows have the same value, same' in config and "the last column" in out
    train(tmp_path)
    evaluate = next_commands(out)[1]
    assert Run(evaluate[1:], cwd=tmp_path).status == DONE


def test_a_task_that_the_user_chooses(tmp_path):
    """Tests a task that the user names. prepare/new/new_test.cc tests the choices that `new` makes by itself."""
    write_table(tmp_path / "t.csv", [[f"{x:.4f}", i % 4, i % 2] for i, x in enumerate(RANDOM.normal(size=60))], ["x", "Target", "even"])
    out, config = new(tmp_path, "t.csv", "--task", "regression")
    assert field(config, "label") == ["Target"] and "by its name" in out and field(config, "task") == ["REGRESSION"]


def picture(folder, name, colour):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.integers(0, 60, (40, 50, 3)) + np.array(colour)
    Image.fromarray(pixels.astype(np.uint8)).save(folder / name)


def test_folders_of_images(tmp_path):
    for part, count in (("train", 8), ("val", 3)):
        for name, colour in (("red", (190, 0, 0)), ("blue", (0, 0, 190))):
            for i in range(count):
                picture(tmp_path / "photos" / part / name, f"{i}.png" if i % 2 else f"{i}.jpg", colour)
    picture(tmp_path / "photos/test", "1.png", (190, 0, 0))
    (tmp_path / "photos/train/blue/9.jpg").write_bytes(b"\xff\xd8 cut short")
    out, config = new(tmp_path, "photos")
    assert "bad_samples { policy: SKIP" in config and "note: damaged: photos/train/blue/9.jpg" in out
    assert field(config, "train") == ["photos/train"] and field(config, "validation") == ["photos/val"]
    assert field(config, "size") == ["32"] and "resnet { depth: 18 }" in config and field(config, "mirror") == ["true"]
    train(tmp_path)
    assert next_commands(out)[1][:5] == ["lockstep", "predict", "runs/train", "--input", "photos/test"]
    assert Run(next_commands(out)[1][1:], cwd=tmp_path).status == DONE


def test_shards_and_class_folders_of_digits(tmp_path):
    for digit in range(2):
        for i in range(6):
            picture(tmp_path / "digits" / str(digit), f"{i}.jpg", (100 * digit, 50, 50))
    _, config = new(tmp_path, "digits")
    assert field(config, "mirror") == ["false"] and field(config, "validation_fraction") == ["0.2"]
    assert Run(["prepare", "shards", "digits", "shards"], cwd=tmp_path).status == DONE
    (tmp_path / "train.pbtxt").unlink()
    _, config = new(tmp_path, "shards")
    assert field(config, "train") == ["shards"]
    train(tmp_path)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("kind", ["numbers", "pixels", "several", "mnist", "cifar"])
@pytest.mark.all_tier(
    "further kinds of arrays are recognised in the same way",
    unless=lambda kind: kind in ("numbers", "pixels", "mnist"),
)
def test_arrays(kind, tmp_path):
    labels = np.arange(60) % 3
    pixels = RANDOM.integers(0, 255, (60, 12, 12), dtype=np.uint8)
    if kind == "numbers":
        np.save(tmp_path / "x.npy", RANDOM.normal(size=(60, 5)).astype(np.float32))
        np.save(tmp_path / "y.npy", RANDOM.normal(50, 9, size=60))
    elif kind == "pixels":
        np.save(tmp_path / "train_images.npy", pixels)
        np.save(tmp_path / "train_labels.npy", labels)
        np.save(tmp_path / "test_images.npy", pixels[:9])
        np.save(tmp_path / "test_labels.npy", labels[:9])
    elif kind == "several":
        np.save(tmp_path / "X_train.npy", RANDOM.normal(size=(60, 4, 3)))
        np.save(tmp_path / "y_train.npy", RANDOM.integers(0, 2, (60, 2)))
    elif kind == "mnist":
        (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pixels))
        (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    else:
        record = RANDOM.integers(0, 255, (60, 3073), dtype=np.uint8)
        record[:, 0] = labels
        (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes())
    out, config = new(tmp_path, ".")
    assert field(config, "name") == [{"numbers": "mlp", "several": "lstm", "cifar": "resnet"}.get(kind, "convnet")]
    if kind == "numbers":
        assert field(config, "task") == ["REGRESSION"] and field(config, "standardize_targets") == ["true"]
    if kind == "pixels":
        assert float(field(config, "mean")[0][1:-1]) == pytest.approx(pixels.mean() / 255, abs=1e-4)
        assert "--input test_images.npy test_labels.npy" in out
    if kind == "several":
        assert field(config, "task") == ["MULTI_LABEL"]
    train(tmp_path)


@pytest.mark.parametrize("shape,images", [((12, 11, 3), True), ((4, 12, 11), True), ((12, 11, 4), False)])
def test_arrays_of_channels(shape, images, tmp_path):
    """Checks that `new` takes for images what the format NPY reads as images of the same shape."""
    np.save(tmp_path / "x.npy", RANDOM.integers(0, 255, (60, *shape), dtype=np.uint8))
    np.save(tmp_path / "y.npy", np.arange(60) % 3)
    _, config = new(tmp_path, ".")
    assert ("kind: PIXELS" in config) == images, config
    train(tmp_path)


def test_tokens(tmp_path):
    for name, count in (("train.bin", 3000), ("val.bin", 600)):
        RANDOM.integers(0, 70, count).astype(np.uint16).tofile(tmp_path / name)
    out, config = new(tmp_path, ".")
    assert field(config, "classes") == ["128"] and field(config, "validation") == ["val.bin"]
    train(tmp_path, "max_steps=3")


def write(folder, name, text):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def arrays(y, at=None, value=None, dtype=np.float32):
    """Returns files of an array of inputs, in which the number `value` stands at the index `at`, and of targets."""
    x = RANDOM.normal(size=(len(y), 5)).astype(dtype)
    if at is not None:
        x[at] = value
    return {"x.npy": npy(x), "y.npy": npy(y)}


def changed(y, value):
    y = np.array(y, dtype=float)
    y[3] = value
    return y


THREE = np.arange(90) % 3
# Maps a name to (the files, further words of `new`, what the error says).
ARRAY_MISTAKES = {
    "nan in an input": (arrays(THREE, (7, 2), np.nan), [], "x.npy: sample 7: number 2 is nan: fill it in"),
    "infinity in an input": (arrays(THREE, (89, 4), -np.inf, np.float64), [], "x.npy: sample 89: number 4 is -inf: fill it in"),
    "a number beyond float32": (arrays(THREE, (0, 0), 1e300, np.float64), [], "x.npy: sample 0: number 0 is 1e+300, which is beyond float32"),
    "nan with a sign": (arrays(THREE, (7, 2), np.copysign(np.nan, -1)), [], "x.npy: sample 7: number 2 is nan"),
    "nan with a sign in a target": (arrays(changed(THREE, np.copysign(np.nan, -1))), [], "y.npy: sample 3: nan is no finite number"),
    "nan in a half": (arrays(THREE, (50, 1), np.nan, np.float16), [], "x.npy: sample 50: number 1 is nan"),
    "nan in a label": (arrays(changed(THREE, np.nan)), [], "y.npy: sample 3: nan is no finite number"),
    "infinity in a target": (arrays(changed(THREE, np.inf)), ["--task", "regression"], "y.npy: sample 3: inf is no finite number"),
    "labels far apart": (arrays(np.array([0, 5 * 10**8, 10**9])[THREE]), [], "3 different numbers up to 1000000000, and classes are counted from 0"),
    "labels less far apart": (arrays(np.array([0, 500, 5000])[THREE]), [], "3 different numbers up to 5000"),
    "float labels far apart": (arrays(np.array([0, 5e8, 1e9])[THREE]), ["--task", "classification"], "3 different numbers up to 1000000000"),
    "a negative label": (arrays(THREE - 1), ["--task", "classification"], "label -1 is out of range"),
    "one class": (arrays(np.zeros(90, int)), [], "y.npy: all samples have the same target, so there is nothing to learn"),
    "one class that is not 0": (arrays(np.full(90, 7)), [], "all samples have the same target"),
    "one number": (arrays(np.full(90, 0.5)), [], "all samples have the same target"),
    "one sample": (arrays(np.zeros(1, int)), [], "1 sample: give at least 10"),
}


@pytest.mark.parametrize("name", ARRAY_MISTAKES)
@pytest.mark.all_tier(
    "other numbers of the same kind are found alike",
    unless=lambda name: name in ("a number beyond float32", "nan with a sign in a target", "labels far apart", "one class"),
)
def test_arrays_that_do_not_train_are_refused(name, tmp_path):
    files, words, part = ARRAY_MISTAKES[name]
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    expect_error(Run(["new", ".", *words], cwd=tmp_path), DATA, part)
    assert not (tmp_path / "train.pbtxt").exists()


# Maps a name to (the targets, the task that `new` chooses).
TARGETS = {
    "floats that are integers": (THREE.astype(float), "CLASSIFICATION"),
    "from 1": (THREE + 1, "CLASSIFICATION"),
    "with a gap": (np.array([0, 5, 10])[THREE], "CLASSIFICATION"),
    "truths": (THREE > 0, "CLASSIFICATION"),
    "negative": (THREE - 1, "REGRESSION"),
    "floats far apart": (np.array([0, 5e8, 1e9])[THREE], "REGRESSION"),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.all_tier("one kind of targets stands for the others", unless=lambda name: name == "negative")
def test_arrays_of_unusual_targets_train(name, tmp_path):
    targets, task = TARGETS[name]
    for file, content in arrays(targets).items():
        (tmp_path / file).write_bytes(content)
    _, config = new(tmp_path, ".")
    assert field(config, "task") == [task]
    train(tmp_path)


TASK_WORDS = {"REGRESSION": "REGRESSION", "Regression": "REGRESSION", "CLASSIFICATION": "CLASSIFICATION", "Multi-Label": "MULTI_LABEL", "multilabel": "MULTI_LABEL"}


@pytest.mark.parametrize("word", TASK_WORDS)
@pytest.mark.all_tier("each word is compared alike", unless=lambda word: word == "Multi-Label")
def test_words_for_a_task(word, tmp_path):
    write(tmp_path, "t.csv", GOOD)
    assert field(new(tmp_path, "t.csv", "--task", word)[1], "task") == [TASK_WORDS[word]]


def test_a_config_to_standard_output(tmp_path):
    write(tmp_path, "t.csv", GOOD)
    run = Run(["new", "t.csv", "--output", "-"], cwd=tmp_path)
    assert run.status == DONE and "t.csv: 20 rows" in run.err, run
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]
    assert run.out == new(tmp_path, "t.csv")[1]


GOOD = "a,b,y\n" + "".join(f"{i * 0.7},{i % 3},{i % 2}\n" for i in range(20))
MISTAKES = {
    "a column that is not there": ({"t.csv": GOOD}, ["t.csv", "--label", "yy"], USAGE, '--label yy: t.csv has no such column; did you mean "y"?'),
    "a label twice": ({"t.csv": GOOD}, ["t.csv", "--label", "y", "--label", "y"], USAGE, "--label y is given twice"),
    "labels that are no neighbours": ({"t.csv": GOOD[6:]}, ["t.csv", "--label", "0", "--label", "2"], USAGE, "without a header several labels must be neighbours"),
    "no such file": ({}, ["t.csv"], DATA, "t.csv: no such file or folder"),
    "an empty folder": ({}, ["."], DATA, ".: the folder is empty: give a CSV file or a folder with train.csv"),
    "one column": ({"t.csv": "y\n1\n2\n"}, ["t.csv"], DATA, 't.csv:1: one column, "y"'),
    "a ragged row": ({"t.csv": GOOD + "1,2\n"}, ["t.csv"], DATA, "t.csv:22: 2 columns where 3 are expected"),
    "a missing label": ({"t.csv": GOOD + "1,2,\n"}, ["t.csv"], DATA, "t.csv:22: column 3 (y): 1 of 21 rows have no label"),
    "one class": ({"t.csv": re.sub(r"(?m),\d$", ",0", GOOD)}, ["t.csv"], DATA, 'column 3 (y): all rows have the label "0"'),
    "texts that are no classes": ({"t.csv": "a,y\n" + "".join(f"{i},t{i}\n" for i in range(9))}, ["t.csv"], DATA, "column 2 (y): 9 different values in 9 rows are no classes"),
    "numbers as labels": ({"t.csv": GOOD}, ["t.csv", "--label", "b", "--task", "multi_label"], DATA, "column 2 (b) holds other values than 0 and 1"),
    "another test file": ({"train.csv": GOOD, "test.csv": "a,c\n1,2\n"}, ["."], DATA, "test.csv: column 2 (c): train.csv has no such column"),
    "nothing left": ({"t.csv": "id,y\n" + "".join(f"i{i},{i % 2}\n" for i in range(20))}, ["t.csv"], DATA, "no column is left to learn from (id: an id"),
    "several tables": ({"a.csv": GOOD, "b.csv": GOOD}, ["."], DATA, "2 tables (a.csv, b.csv): call the one to train on train.csv"),
    "an array without targets": ({"x.npy": b""}, ["x.npy"], DATA, "no pair of inputs and targets: call the two files x.npy and y.npy"),
    "a label of images": ({"red/1.png": b"", "blue/1.png": b""}, [".", "--label", "y"], USAGE, "--label: is for tables"),
    "a header alone": ({"t.csv": "a,b,y\n"}, ["t.csv"], DATA, "t.csv: a header and no rows below it"),
    "a header without a line's end": ({"t.csv": "name;kind"}, ["t.csv"], DATA, "t.csv: a header and no rows below it"),
    "one row": ({"t.csv": "a,b,y\n1,2,3\n"}, ["t.csv"], DATA, "t.csv: 1 row: give at least 5"),
    "columns of one name": ({"t.csv": "a,a,y\n" + GOOD[6:]}, ["t.csv"], DATA, 't.csv: columns 1 and 2 have one name, "a"'),
    "columns without a value": ({"t.csv": re.sub(r"(?m)^[^ay].*,.*,", ",,", GOOD)}, ["t.csv"], DATA, "no column is left to learn from (a: no row has a value there"),
    "infinity among numbers": ({"t.csv": "a,y\n" + "".join(f"{i},{i / 7 if i else 'inf'}\n" for i in range(20))}, ["t.csv"], DATA, 't.csv:2: column 2 (y): "inf" is no number'),
    "a task that is none": ({"t.csv": GOOD}, ["t.csv", "--task", "segmentation"], USAGE, "not in {classification,multi_label,regression}"),
    "a folder as output": ({"t.csv": GOOD}, ["t.csv", "--output", "configs/"], USAGE, 'is no name of a file: give one such as train.pbtxt'),
    "no output": ({"t.csv": GOOD}, ["t.csv", "--output", ""], USAGE, 'is no name of a file'),
    "a device as output": ({"t.csv": GOOD}, ["t.csv", "--output", "/dev/null"], USAGE, "/dev/null: the file exists: write another one"),
    "images without classes": ({"1.png": b"", "2.png": b""}, ["."], DATA, "images that lie in no folder of a class"),
}


LATER = {
    "several tables",
    "numbers as labels",
    "labels that are no neighbours",
    "images without classes",
    "a label of images",
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.all_tier(
    "unit tests of a table's plan, and the mistakes that stay, go through the same checks",
    unless=lambda name: name not in LATER,
)
def test_mistakes_are_one_line(name, tmp_path):
    files, words, status, part = MISTAKES[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write(tmp_path, file, text)
    expect_error(Run(["new", *words], cwd=tmp_path), status, part)
    assert not (tmp_path / "train.pbtxt").exists()


@pytest.mark.all_tier("table_files_test predicts with such files")
def test_a_test_file_may_have_another_delimiter(tmp_path):
    write(tmp_path, "train.csv", GOOD)
    write(tmp_path, "test.csv", "a;b\n1;2\n")
    assert "note: test.csv has a semicolon between cells, and train.csv a comma" in new(tmp_path, ".")[0]


def test_masks_need_a_model_of_ones_own(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((20, 8, 8), np.uint8))
    np.save(tmp_path / "masks.npy", np.zeros((20, 8, 8), np.uint8))
    expect_error(Run(["new", "."], cwd=tmp_path), DATA, "no built-in model predicts pixels", "lockstep.export")
