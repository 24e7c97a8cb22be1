"""Compares Lockstep (`lockstep new` and `lockstep train --folds 5`) with scikit-learn's HistGradientBoosting and
pytabkit's RealMLP on five small tables, and on the three noisy ones of noisy_tables.py, from the table's file to the
predictions, with the same folds.

    python tables_against_peers.py LOCKSTEP [--tables breast_cancer wine diabetes digits titanic churn loans clicks]
                                   [--seeds 1 2 3 4 5] [--peers gradient_boosting real_mlp] [--model tabm]
                                   [--set FIELD=VALUE ...]

A noisy table is drawn anew for each seed. For these tables the results also have Lockstep's log loss, and the log loss
of a constant: of the share of positive rows as the prediction for each row. The score of a table with classes is the area under the ROC curve (each class against the rest, averaged over the
classes). The score of a table with numbers as targets is R2. A score is computed on the held-back rows of each fold,
and averaged over the folds and then over the seeds. A seed determines the folds and all random numbers. The seconds are
those of all five trainings of a seed; for Lockstep they include the start of the program and the predictions. The
config that `lockstep new` writes chooses the best epoch on the held-back rows, which favours Lockstep a little. The
result lockstep_all_epochs is without that choice (early_stopping.metric is empty), so that training uses only the
training rows, as HistGradientBoosting and RealMLP do. All programs may use all cores. Prints a JSON line for each table
and seed, and one for each table. Needs scikit-learn, pandas and, for real_mlp, pytabkit.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import noisy_tables  # noqa: E402

FOLDS = 5


def titanic_like(rows=891):
    """Returns a random table that is similar to Kaggle's Titanic: it has categories, missing cells, an id, names and
    tickets."""
    draw = np.random.default_rng(0)
    sex = draw.choice(["male", "female"], rows, p=[0.65, 0.35])
    klass = draw.choice([1, 2, 3], rows, p=[0.24, 0.21, 0.55])
    age = np.clip(draw.normal(30, 14, rows), 0.5, 80).round(1)
    siblings, parents = draw.poisson(0.5, rows), draw.poisson(0.4, rows)
    fare = (draw.lognormal(3.6 - 0.6 * (klass - 1), 0.5, rows)).round(4)
    port = draw.choice(["S", "C", "Q"], rows, p=[0.72, 0.19, 0.09])
    score = 2.6 * (sex == "female") - 0.9 * (klass - 2) - 0.03 * (age - 30) - 0.35 * siblings + 0.4 * (port == "C") - 1
    survived = draw.random(rows) < 1 / (1 + np.exp(-score))
    table = pd.DataFrame({"PassengerId": np.arange(1, rows + 1), "Survived": survived.astype(int), "Pclass": klass})
    table["Name"] = [f"Passenger {draw.integers(10**6)}, {s}" for s in sex]
    table["Sex"], table["Age"], table["SibSp"], table["Parch"] = sex, age, siblings, parents
    table["Ticket"], table["Fare"] = [f"T {draw.integers(10**5)}" for _ in sex], fare
    table["Embarked"] = port
    table.loc[draw.random(rows) < 0.2, "Age"] = np.nan
    table.loc[draw.random(rows) < 0.01, "Embarked"] = np.nan
    return table, "Survived"


def of_sklearn(name):
    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    return bunch.frame, "target"


TABLES = {name: lambda name=name: of_sklearn(name) for name in ("breast_cancer", "wine", "diabetes", "digits")}
TABLES["titanic"] = titanic_like


def noisy(name, seed):
    columns, label = noisy_tables.TABLES[name](seed=seed)
    return pd.DataFrame(columns), label


def score_of(truth, predicted):
    """Returns the score of predictions: R2 if `predicted` is a vector of numbers, and the area under the ROC curve if
    it is a matrix of the probabilities of classes."""
    if predicted.ndim == 1:
        return r2_score(truth, predicted)
    if predicted.shape[1] == 2:
        return roc_auc_score(truth, predicted[:, 1])
    return roc_auc_score(truth, predicted, multi_class="ovr", average="macro")


def lockstep(options, config, seed, folder, classes, *more):
    """Trains with `lockstep train --folds`. Returns the fold of each row, the predictions, and the seconds."""
    run = folder / f"run-{seed}-{len(more)}"
    settings = [f"seed={seed}", f"run_dir={run}", *options.set, *more]
    words = [options.lockstep, "train", config, "--folds", str(FOLDS), *(w for s in settings for w in ("--set", s))]
    begin = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    seconds = time.monotonic() - begin
    rows = pd.read_csv(run / "held_back.csv")
    if classes is None:
        return rows["fold"].to_numpy(), rows[rows.columns[-1]].to_numpy(), seconds
    return rows["fold"].to_numpy(), rows[rows.columns[-len(classes) :]].to_numpy(), seconds


def features_of(table, label, ignored):
    inputs = table.drop(columns=[label, *ignored])
    for name in inputs.columns:
        if not pd.api.types.is_numeric_dtype(inputs[name]):
            inputs[name] = inputs[name].astype("category")
    return inputs


def gradient_boosting(has_classes, seed):
    kind = HistGradientBoostingClassifier if has_classes else HistGradientBoostingRegressor
    return kind(categorical_features="from_dtype", random_state=seed)


def real_mlp(has_classes, seed):
    from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor

    return (RealMLP_TD_Classifier if has_classes else RealMLP_TD_Regressor)(device="cpu", random_state=seed, verbosity=0)


PEERS = {"gradient_boosting": gradient_boosting, "real_mlp": real_mlp}


def of_peer(make, inputs, truth, folds, seed, has_classes):
    scores, begin = [], time.monotonic()
    for fold in range(FOLDS):
        trained, held_back = inputs[folds != fold], inputs[folds == fold]
        if make is real_mlp:  # RealMLP does not accept missing numbers
            means = trained.mean(numeric_only=True)
            trained, held_back = trained.fillna(means), held_back.fillna(means)
        model = make(has_classes, seed).fit(trained, truth[folds != fold])
        predicted = model.predict_proba(held_back) if has_classes else model.predict(held_back).ravel()
        scores.append(score_of(truth[folds == fold], predicted))
    return float(np.mean(scores)), time.monotonic() - begin


def prepared(options, name, seed, folder):
    """Writes the table and the config that `lockstep new` makes for it into `folder`. Returns the table, its label, and
    the config's text."""
    table, label = noisy(name, seed) if name in noisy_tables.TABLES else TABLES[name]()
    table.to_csv(folder / "train.csv", index=False)
    config = folder / "train.pbtxt"
    config.unlink(missing_ok=True)
    words = [options.lockstep, "new", "train.csv", "--label", label]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    text = config.read_text()
    if options.model == "tabm" and 'name: "mlp"' in text:
        text = text.replace('name: "mlp"', 'name: "tabm"').replace("mlp {", "tabm {").replace("batch_norm: true", "")
        config.write_text(text)
    return table, label, text


def compared(options, name, seed, folder):
    """Returns the results of all programs on a table with the folds of a seed."""
    table, label, text = prepared(options, name, seed, folder)
    truth = table[label].to_numpy()
    ignored = [c for c in table.columns if f'ignore: "{c}"' in text]
    classes = None if "REGRESSION" in text else sorted(table[label].unique())
    inputs = features_of(table, label, ignored)
    line = {"table": name, "seed": seed}
    for which, more in (("lockstep", []), ("lockstep_all_epochs", ["early_stopping.metric="])):
        folds, predicted, seconds = lockstep(options, "train.pbtxt", seed, folder, classes, *more)
        ours = [score_of(truth[folds == fold], predicted[folds == fold]) for fold in range(FOLDS)]
        line |= {which: round(float(np.mean(ours)), 4), f"{which}_s": round(seconds, 1)}
        if name in noisy_tables.TABLES:
            line[f"{which}_log_loss"] = round(log_loss(truth, predicted[:, 1]), 4)
            line["constant_log_loss"] = round(log_loss(truth, np.full(len(truth), truth.mean())), 4)
    for peer in options.peers:
        score, seconds = of_peer(PEERS[peer], inputs, truth, folds, seed, classes is not None)
        line |= {peer: round(score, 4), f"{peer}_s": round(seconds, 1)}
    return line


def main():
    names = [*TABLES, *noisy_tables.TABLES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--tables", nargs="+", default=names, choices=names)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--model", default="mlp", choices=["mlp", "tabm"], help="in the place of an mlp, with its widths")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    for name in options.tables:
        results = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in options.seeds:
                results.append(compared(options, name, seed, pathlib.Path(folder)))
                print(json.dumps(results[-1]), flush=True)
        means = {key: round(float(np.mean([line[key] for line in results])), 4) for key in results[0] if key not in ("table", "seed")}
        print(json.dumps({"table": name, "seeds": len(results), "mean": means}), flush=True)


if __name__ == "__main__":
    main()
