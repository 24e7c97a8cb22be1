"""Trains examples/titanic/titanic.pbtxt with several seeds, and scikit-learn's logistic regression on the same rows.
Each seed holds back different rows, on which both models are evaluated.

    python titanic_against_sklearn.py LOCKSTEP TRAIN_CSV [--seeds 1 2 3 4 5] [--set FIELD=VALUE ...]

TRAIN_CSV is Kaggle's training file (https://www.kaggle.com/c/titanic). The script needs scikit-learn. It prints one
JSON line: accuracy and loss of both models on the held-back rows, for each seed, and the means over the seeds.
"""

import argparse
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from sampler_reference import Permutation  # noqa: E402

CONFIG = ROOT / "examples/titanic/titanic.pbtxt"
NUMBERS, TEXTS = ["Pclass", "Age", "SibSp", "Parch", "Fare"], ["Sex", "Embarked"]  # the config's columns
FRACTION = 0.2  # the config's validation_fraction
SPLIT_ROUND = 2**64 - 1  # the round of the permutation that selects the held-back rows


def table(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = [[float(row[name] or "nan") for name in NUMBERS] for row in rows]
    texts = [[row[name] for name in TEXTS] for row in rows]
    return np.array([[*n, *t] for n, t in zip(numbers, texts)], object), np.array([int(row["Survived"]) for row in rows])


def logistic_regression(inputs, labels, seed):
    order = Permutation(len(labels), seed, SPLIT_ROUND)
    first = len(labels) - math.ceil(len(labels) * FRACTION)
    rows = [order[position] for position in range(len(labels))]
    train, validation = rows[:first], rows[first:]
    numbers, texts = list(range(len(NUMBERS))), list(range(len(NUMBERS), len(NUMBERS) + len(TEXTS)))
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            ("texts", OneHotEncoder(handle_unknown="ignore"), texts),
        ]
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(inputs[train], labels[train])
    loss = log_loss(labels[validation], model.predict_proba(inputs[validation]))
    return {"accuracy": model.score(inputs[validation], labels[validation]), "loss": float(loss)}


def lockstep(program, path, seed, settings):
    with tempfile.TemporaryDirectory() as folder:
        texts = {"seed": seed, "run_dir": json.dumps(f"{folder}/run"), "data.train": json.dumps([str(path)])}
        fields = [f"{name}={text}" for name, text in texts.items()] + settings
        command = [program, "train", str(CONFIG), *(word for field in fields for word in ("--set", field))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        last = json.loads((pathlib.Path(folder) / "run/log.jsonl").read_text().split("\n")[-2])
    assert last["event"] == "done", last
    return {name: last[f"val_{name}"] for name in ("accuracy", "loss")}


def summary(results):
    means = {f"mean_{name}": round(float(np.mean([r[name] for r in results])), 4) for name in results[0]}
    return means | {name: [round(r[name], 4) for r in results] for name in results[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("train_csv", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--set", nargs="+", default=[])
    arguments = parser.parse_args()
    path = arguments.train_csv.resolve()
    inputs, labels = table(path)
    ours = [lockstep(arguments.lockstep, path, seed, arguments.set) for seed in arguments.seeds]
    theirs = [logistic_regression(inputs, labels, seed) for seed in arguments.seeds]
    print(json.dumps({"seeds": arguments.seeds, "lockstep": summary(ours), "logistic_regression": summary(theirs)}))


if __name__ == "__main__":
    main()
