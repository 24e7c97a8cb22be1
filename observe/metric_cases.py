"""Writes metric_cases.json: samples with unusual outputs or targets, and scikit-learn's metrics of them.

    python observe/metric_cases.py > observe/metric_cases.json

needs scikit-learn (the file names the version that made it). Each case has a name, the task, the number of classes, the
outputs, the targets, and the metrics; null stands for a metric that is not defined. All numbers are such that float32
holds them. scikit-learn has no map3: the script computes it by its definition.
"""

import json
import math
import warnings

import numpy as np
import sklearn
from sklearn import metrics as m

warnings.simplefilter("ignore")
IGNORED = 255  # a pixel without a class
DRAW = np.random.default_rng(5)


def of_classes(output, target):
    classes = output.shape[1]
    every = np.arange(classes)
    logits = output - output.max(1, keepdims=True)
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    predicted = output.argmax(1)
    found = {
        "accuracy": m.accuracy_score(target, predicted),
        "log_loss": m.log_loss(target, probability, labels=every),
        "balanced_accuracy": m.balanced_accuracy_score(target, predicted),
        "macro_f1": m.f1_score(target, predicted, average="macro"),
        "weighted_f1": m.f1_score(target, predicted, average="weighted"),
        "matthews": m.matthews_corrcoef(target, predicted),
        "quadratic_kappa": m.cohen_kappa_score(target, predicted, weights="quadratic", labels=every),
    }
    if classes == 2:
        found["f1"] = m.f1_score(target, predicted)
        found["auc"] = m.roc_auc_score(target, output[:, 1] - output[:, 0])
    else:
        found["f1"] = found["macro_f1"]
        order = np.argsort(-output, 1, kind="stable")
        ranks = (order == target[:, None]).argmax(1)
        found["map3"] = np.where(ranks < 3, 1 / (1 + ranks), 0).mean()
    if classes > 5:
        found["top5"] = m.top_k_accuracy_score(target, output, k=5, labels=every)
    return found


def of_labels(output, target):
    predicted = (output > 0).astype(int)
    columns = range(target.shape[1])
    probability = 1 / (1 + np.exp(-output))
    areas = [m.roc_auc_score(target[:, c], output[:, c]) for c in columns if 0 < target[:, c].sum() < len(target)]
    return {
        "accuracy": m.accuracy_score(target, predicted),
        "label_accuracy": 1 - m.hamming_loss(target, predicted),
        "f1": np.mean([m.f1_score(target[:, c], predicted[:, c]) for c in columns]),
        "auc": np.mean(areas) if areas else math.nan,
        "log_loss": np.mean([m.log_loss(target[:, c], probability[:, c], labels=[0, 1]) for c in columns]),
    }


def of_numbers(output, target):
    try:
        rmsle = m.root_mean_squared_log_error(target, output)
    except ValueError:
        rmsle = math.nan
    return {
        "rmse": m.root_mean_squared_error(target, output),
        "mae": m.mean_absolute_error(target, output),
        "r2": m.r2_score(target, output),
        "rmsle": rmsle,
    }


def of_pixels(output, target):
    known = target != IGNORED
    actual, predicted = target[known], output.argmax(1)[known]
    if not known.any():
        return dict.fromkeys(("accuracy", "iou", "dice"), math.nan)
    return {
        "accuracy": m.accuracy_score(actual, predicted),
        "iou": m.jaccard_score(actual, predicted, average="macro"),
        "dice": m.f1_score(actual, predicted, average="macro"),
    }


TASKS = {"CLASSIFICATION": of_classes, "MULTI_LABEL": of_labels, "REGRESSION": of_numbers, "SEGMENTATION": of_pixels}
cases = []


def add(task, name, output, target):
    output = np.asarray(output, np.float32).astype(float)
    target = np.asarray(target, np.float32).astype(float if task == "REGRESSION" else int)
    found = {key: None if math.isnan(value) else float(value) for key, value in TASKS[task](output, target).items()}
    shape = list(output.shape)
    cases.append(dict(name=f"{task} {name}", task=task, shape=shape, output=output.ravel().tolist(),
                      target=target.ravel().tolist(), metrics=found))  # fmt: skip


def outputs(predicted, classes, sure=2.0):
    """Returns outputs whose greatest one is that of the predicted class."""
    return np.eye(classes)[np.asarray(predicted)] * sure


def waves(rows, columns):
    return DRAW.normal(size=(rows, columns)).round(2)


def classification(name, output, target):
    add("CLASSIFICATION", name, output, target)


for classes in (2, 3, 7):
    classification(f"one class, all right, {classes} classes", outputs([1] * 5, classes), [1] * 5)
    classification(f"one class, all wrong, {classes} classes", outputs([0] * 5, classes), [1] * 5)
    classification(f"one class, some right, {classes} classes", outputs([1, 0, 1], classes), [1] * 3)
    classification(f"one row, right, {classes} classes", outputs([1], classes), [1])
    classification(f"one row, wrong, {classes} classes", outputs([0], classes), [1])
    classification(f"all outputs are equal, {classes} classes", np.zeros((14, classes)), np.arange(14) % classes)
    classification(f"a constant prediction, {classes} classes", outputs([1] * 8, classes), np.arange(8) % classes)
    classification(f"sure mistakes, {classes} classes", outputs([0, 1, 1], classes, sure=400), [1, 1, 0])
    classification(f"few values, so that many outputs are equal, {classes} classes",
                   DRAW.integers(0, 3, size=(20, classes)), np.arange(20) % classes)  # fmt: skip
    classification(f"noise, {classes} classes", waves(25, classes), DRAW.integers(0, classes, 25))
classification("no sample is predicted positive", outputs([0, 0, 0, 0], 2), [0, 1, 0, 1])
classification("no sample is positive, some are predicted so", outputs([0, 1, 1, 0], 2), [0, 0, 0, 0])
classification("perfect", outputs([0, 1, 1, 0], 2), [0, 1, 1, 0])
classification("all inverted", outputs([1, 0, 0, 1], 2), [0, 1, 1, 0])
classification("equal scores of both classes", [[0, 1], [0, 1], [0, 2], [0, 2], [0, 0]], [0, 1, 0, 1, 1])
classification("a class is predicted that no sample has", outputs([0, 1, 4, 4, 2], 5), [0, 1, 1, 0, 2])
classification("a class that is never predicted", outputs([0, 1, 1, 0, 2], 5), [0, 1, 4, 4, 2])
classification("classes between others never occur", outputs([0, 4, 4, 0, 0], 5), [0, 4, 0, 0, 4])
classification("five of six outputs are equal", [[1, 1, 1, 1, 1, 0]] * 6, range(6))
classification("six of seven outputs are equal", [[0, 1, 1, 1, 1, 1, 1]] * 7, range(7))
classification("equal outputs of three classes", [[1, 1, 1], [2, 2, 1], [1, 2, 2], [1, 2, 1]] * 3, [0, 1, 2] * 4)

for rows, columns in ((8, 3), (30, 5), (1, 4)):
    add("MULTI_LABEL", f"noise, {rows} rows", waves(rows, columns), DRAW.integers(0, 2, (rows, columns)))
half = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]])
add("MULTI_LABEL", "all right", half * 2 - 1, half)
add("MULTI_LABEL", "all wrong", 1 - half * 2, half)
add("MULTI_LABEL", "each row has one wrong label", np.where(np.eye(4, 3, dtype=bool), 1 - half * 2, half * 2 - 1), half)
add("MULTI_LABEL", "a label applies to all samples", waves(4, 3), half)
add("MULTI_LABEL", "a label applies to no sample", waves(4, 3), half * [1, 1, 0])
add("MULTI_LABEL", "two labels have one class", waves(4, 3), half * [1, 0, 0] + [0, 1, 0])
add("MULTI_LABEL", "no label has both classes", waves(4, 3), half * 0 + [0, 1, 0])
add("MULTI_LABEL", "no label applies and none is predicted", -np.ones((4, 3)), half * 0)
add("MULTI_LABEL", "a single label", waves(9, 1), DRAW.integers(0, 2, (9, 1)))
add("MULTI_LABEL", "equal outputs", np.zeros((4, 3)), half)
add("MULTI_LABEL", "sure mistakes", 400 * (1 - half * 2), half)

add("REGRESSION", "errors of 1 and 10", [[1, 20], [2, 30], [5, 0]], [[0, 10], [1, 20], [6, 10]])
for columns in (1, 2, 5):
    unit = 10.0 ** np.arange(columns)
    target = DRAW.normal(size=(12, columns)).round(2) * unit
    add("REGRESSION", f"{columns} columns of other units", target + waves(12, columns) * unit, target)
    add("REGRESSION", f"{columns} columns of positive numbers", np.abs(target) + 0.5, np.abs(target))
    add("REGRESSION", f"one row, {columns} columns", target[:1] + 1, target[:1])
    add("REGRESSION", f"all right, {columns} columns", target, np.float32(target))
    add("REGRESSION", f"constant targets, all right, {columns} columns", np.full((9, columns), 0.1), np.full((9, columns), np.float32(0.1)))
    add("REGRESSION", f"constant targets, wrong, {columns} columns", np.full((9, columns), 0.3), np.full((9, columns), np.float32(0.1)))
    add("REGRESSION", f"zeros, {columns} columns", waves(9, columns), np.zeros((9, columns)))
    add("REGRESSION", f"a target of -1, {columns} columns", target, np.full((12, columns), -1))
    add("REGRESSION", f"an output of -1, {columns} columns", np.full((12, columns), -1), np.abs(target))
add("REGRESSION", "a constant and a varying column", [[1, 2], [1, 4], [1, 9]], [[1, 2], [1, 5], [1, 8]])
add("REGRESSION", "far from 0", 1e6 + waves(15, 2), 1e6 + np.float32(waves(15, 2)).round(1))

for name, target in (
    ("all classes", np.arange(24) % 3),
    ("some pixels without a class", np.where(np.arange(24) % 4 == 0, IGNORED, np.arange(24) % 3)),
    ("one class", np.ones(24)),
    ("no pixel has a class", np.full(24, IGNORED)),
    ("one pixel has a class", np.where(np.arange(24) == 5, 2, IGNORED)),
):
    add("SEGMENTATION", name, DRAW.normal(size=(2, 4, 3, 4)).round(2), target.reshape(2, 3, 4))
    add("SEGMENTATION", f"{name}, one is predicted", outputs(np.ones(24, int), 4).T.reshape(4, 2, 3, 4).swapaxes(0, 1), target.reshape(2, 3, 4))

lines = ",\n".join(json.dumps(case) for case in cases)
print(f'{{"made_by": "scikit-learn {sklearn.__version__}", "cases": [\n{lines}\n]}}')
