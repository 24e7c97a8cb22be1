"""`lockstep new` and `lockstep train`, with nothing else given, beside scikit-learn's HistGradientBoosting at its defaults.

    python new_against_sklearn.py LOCKSTEP [--seeds 6 7 8 9 10] [--tables wine ...] [--set FIELD=VALUE ...]

Five tables: scikit-learn's breast_cancer, wine, diabetes and digits, and one that is made like Kaggle's Titanic (texts,
missing cells, ids, names). Each seed puts another fifth of the rows aside, which both predict and neither sees: Lockstep
holds back a fifth of the rest to choose its epoch, HistGradientBoosting trains on all of it. One JSON line for each
table: the area under the ROC curve (of several classes the mean of one against the rest) or R2, the mean over the seeds
and each seed's. Needs scikit-learn.
"""

import argparse
import csv
import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

ROWS = 891  # of the table like the Titanic's
TEXTS = {"Name", "Sex", "Ticket", "Cabin", "Embarked"}


def like_the_titanic():
    """Names, cells and shares of Kaggle's train.csv, and a chance to survive that depends on sex, class, age and family as
    it does there."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(ROWS):
        sex = random.choice(["male", "female"], p=[0.65, 0.35])
        first = int(random.choice([1, 2, 3], p=[0.24, 0.21, 0.55]))
        age = float(np.clip(random.normal([40, 30, 25][first - 1], 13), 0.4, 80))
        siblings = int(random.choice([0, 1, 2, 3, 4], p=[0.68, 0.23, 0.03, 0.02, 0.04]))
        parents = int(random.choice([0, 1, 2], p=[0.76, 0.13, 0.11]))
        fare = float(np.exp(random.normal([4.0, 2.8, 2.3][first - 1], 0.5)) * (1 + 0.4 * (siblings + parents)))
        port = random.choice(["S", "C", "Q", ""], p=[0.72, 0.19, 0.0876, 0.0024])
        cabin = f"{random.choice(list('BCDE'))}{random.integers(1, 130)}" if random.random() < [0.8, 0.09, 0.02][first - 1] else ""
        child = age < 12 and siblings < 3
        chance = 2.6 * (sex == "female") - 0.9 * (first - 1) - 0.02 * age + 1.6 * child - 0.35 * siblings
        chance += -0.9 * (sex == "female" and first == 3) + 0.3 * (port == "C") + 0.6
        rows.append(
            {
                "PassengerId": str(i + 1),
                "Survived": str(int(random.random() < 1 / (1 + math.exp(-chance)))),
                "Pclass": str(first),
                "Name": f"Passenger, {'Mr.' if sex == 'male' else 'Mrs.'} Number {i}",
                "Sex": sex,
                "Age": f"{age:.1f}" if random.random() < 0.8 else "",
                "SibSp": str(siblings),
                "Parch": str(parents),
                "Ticket": f"A/5 {random.integers(10000, 90000)}",
                "Fare": f"{fare:.4f}",
                "Cabin": cabin,
                "Embarked": port,
            }
        )
    return rows, "Survived", "classes"


def of_sklearn(name):
    data = getattr(datasets, f"load_{name}")(**({"scaled": False} if name == "diabetes" else {}))
    columns = [str(column).replace(" ", "_") for column in data.feature_names]
    target = [repr(float(t)) if name == "diabetes" else str(int(t)) for t in data.target]
    rows = [dict(zip(columns, map(repr, map(float, row)))) | {"target": t} for row, t in zip(data.data, target)]
    return rows, "target", "numbers" if name == "diabetes" else "classes"


def write(path, rows, columns):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *([row[column] for column in columns] for row in rows)])


def boosted(train, test, label, kind):
    """What HistGradientBoosting predicts. It gets texts of few kinds as numbers, and neither ids nor free texts."""
    columns = [c for c in train[0] if c not in (label, "PassengerId", "Name", "Ticket", "Cabin")]
    texts = {c: sorted({row[c] for row in train}) for c in columns if c in TEXTS}

    def number(row, column):
        if column in texts:
            return texts[column].index(row[column]) if row[column] in texts[column] else math.nan
        return float(row[column] or "nan")

    inputs = [np.array([[number(row, c) for c in columns] for row in rows]) for rows in (train, test)]
    if kind == "numbers":
        model = HistGradientBoostingRegressor(random_state=0).fit(inputs[0], [float(row[label]) for row in train])
        return model.predict(inputs[1])
    model = HistGradientBoostingClassifier(random_state=0).fit(inputs[0], [int(row[label]) for row in train])
    return model.predict_proba(inputs[1])


def trained(program, folder, label, seed, kind, settings):
    """What Lockstep predicts after three commands."""

    def run(*words):
        done = subprocess.run([program, *map(str, words)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("new", ".")
    sets = [word for field in [f"seed={seed}", *settings] for word in ("--set", field)]
    run("train", "train.pbtxt", *sets)
    words = [] if kind == "numbers" else ["--probabilities"]
    run("predict", "runs/train", "--input", "test.csv", *words, "--output", "predicted.csv")
    with open(folder / "predicted.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    if kind == "numbers":
        return np.array([float(row[next(c for c in row if c != "index")]) for row in rows])
    classes = sum(column.startswith("probability_") for column in rows[0])
    return np.array([[float(row[f"probability_{i}"]) for i in range(classes)] for row in rows])


def score(test, label, kind, predicted):
    if kind == "numbers":
        return r2_score([float(row[label]) for row in test], predicted)
    labels = np.array([int(row[label]) for row in test])
    if predicted.shape[1] == 2:
        return roc_auc_score(labels, predicted[:, 1])
    return roc_auc_score(labels, predicted, multi_class="ovr")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7, 8, 9, 10])
    parser.add_argument("--tables", nargs="+", default=["breast_cancer", "wine", "diabetes", "digits", "titanic"])
    parser.add_argument("--set", nargs="+", default=[])
    arguments = parser.parse_args()
    for name in arguments.tables:
        rows, label, kind = like_the_titanic() if name == "titanic" else of_sklearn(name)
        scores = {"lockstep": [], "hist_gradient_boosting": []}
        for seed in arguments.seeds:
            order = np.random.default_rng(seed).permutation(len(rows))
            aside = len(rows) // 5
            test, train = [rows[i] for i in order[:aside]], [rows[i] for i in order[aside:]]
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                write(folder / "train.csv", train, list(rows[0]))
                write(folder / "test.csv", test, [column for column in rows[0] if column != label])
                ours = trained(arguments.lockstep.resolve(), folder, label, seed, kind, arguments.set)
            scores["lockstep"].append(score(test, label, kind, ours))
            scores["hist_gradient_boosting"].append(score(test, label, kind, boosted(train, test, label, kind)))
        line = {"table": name, "score": "r2" if kind == "numbers" else "auc"}
        for who, values in scores.items():
            line |= {who: round(float(np.mean(values)), 4), f"{who}_of_seeds": [round(float(v), 4) for v in values]}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
