"""Tests multi-label classification, regression and classification end to end, on several numbers of ranks: losses are
compared with PyTorch's, metrics with scikit-learn's definitions, and predictions in CSV files with PyTorch's outputs.
"""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sampler_reference
import tabm_reference
from harness import (
    DATA,
    DONE,
    USAGE,
    Run,
    events,
    expect_refused,
    rows_of,
    save_init,
    skip_without_gpus,
    step_losses,
    train,
    trained_losses,
    write_config,
    write_table,
)

SAMPLES, HELD_OUT, FEATURES, BATCH, STEPS, SEED = 300, 101, 5, 32, 60, 2


def table(folder, name, x, y, labels_first):
    parts = (y, x) if labels_first else (x, y)
    np.savetxt(folder / name, np.concatenate(parts, axis=1), fmt="%.7g", delimiter=",")


TASKS = ["MULTI_LABEL", "REGRESSION", "CLASSIFICATION"]


@pytest.fixture(scope="module", params=[f"{task}-{model}" for model in ("mlp", "tabm") for task in TASKS])
def case(request, tmp_path_factory):
    """Returns (task, folder, config's text, PyTorch's losses in training, PyTorch's outputs for the held-out samples,
    their targets, PyTorch's loss for them)."""
    task, name = request.param.split("-")
    folder = tmp_path_factory.mktemp(request.param)
    random = np.random.default_rng(3)
    x = random.normal(size=(SAMPLES + HELD_OUT, FEATURES)).astype(np.float32)
    hidden = np.tanh(x @ random.normal(size=(FEATURES, 3))) + 0.5 * random.normal(size=(len(x), 3))
    if task == "REGRESSION":
        y, label_column, outputs = 10 * hidden[:, :2], 0, 2
    elif task == "MULTI_LABEL":
        y, label_column, outputs = (hidden > [0, 0.5, -0.5]).astype(float), -3, 3
    else:
        y, label_column, outputs = (hidden[:, :1] > 0.2).astype(float), -1, 2
    table(folder, "train.csv", x[:SAMPLES], y[:SAMPLES], label_column == 0)
    table(folder, "test.csv", x[SAMPLES:], y[SAMPLES:], label_column == 0)
    np.savetxt(folder / "new.csv", x[SAMPLES:], fmt="%.7g", delimiter=",")
    x, y = (torch.from_numpy(np.array([[float(f"{v:.7g}") for v in row] for row in a], dtype=np.float32)) for a in (x, y))

    torch.manual_seed(4)
    if name == "mlp":
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, outputs))
        model_text = "mlp { hidden: 16 }"
    else:
        model = tabm_reference.TabM(FEATURES, [16], outputs, members=3)
        model_text = 'name: "tabm" tabm { members: 3 hidden: 16 dropout: 0 }'
    save_init(folder, model.state_dict())
    loss_of = {
        "REGRESSION": F.mse_loss,
        "MULTI_LABEL": F.binary_cross_entropy_with_logits,
        "CLASSIFICATION": lambda output, target: F.cross_entropy(output, target[:, 0].long()),
    }[task]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0)
    losses = []
    for step in sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=STEPS):
        output, target = model(x[step]), y[step]
        if name == "tabm":
            output, target = output.flatten(0, 1), target.repeat_interleave(model.members, 0)
        loss = loss_of(output, target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if len(losses) == STEPS:
            break
    columns = "" if task == "CLASSIFICATION" else f"label_columns: {y.shape[1]}"
    text = f"""seed: {SEED} global_batch: {BATCH} epochs: 1000 max_steps: {STEPS} init_from: "init.safetensors"
        log {{ every_steps: 1 }} optimizer {{ lr: 0.01 }} model {{ {model_text} }}
        data {{ train: "train.csv" validation: "test.csv" task: {task} csv {{ label_column: {label_column} {columns} }} }}"""
    with torch.no_grad():
        output = model(x[SAMPLES:])
        if name == "tabm":
            output = tabm_reference.together(output, task)
        return task, folder, text, np.array(losses), output.double(), y[SAMPLES:].double(), loss_of(output, y[SAMPLES:]).item()


def f1(predicted, actual):
    return 2 * (predicted * actual).sum() / (predicted.sum() + actual.sum())


def auc(score, actual):
    positive, negative = score[actual == 1], score[actual == 0]
    differences = positive[:, None] - negative[None, :]
    return ((differences > 0).double() + (differences == 0).double() / 2).mean()


def metrics_of(task, output, target):
    if task == "REGRESSION":
        return {"rmse": (output - target).square().mean(0).sqrt().mean(), "mae": (output - target).abs().mean()}
    if task == "MULTI_LABEL":
        predicted = (output > 0).double()
        return {
            "accuracy": (predicted == target).all(1).double().mean(),
            "label_accuracy": (predicted == target).double().mean(),
            "f1": np.mean([f1(predicted[:, i], target[:, i]) for i in range(3)]),
            "auc": np.mean([auc(output[:, i], target[:, i]) for i in range(3)]),
        }
    predicted, target = output.argmax(1).double(), target[:, 0]
    return {
        "accuracy": (predicted == target).double().mean(),
        "f1": f1(predicted, target),
        "auc": auc(output[:, 1] - output[:, 0], target),
    }


# Maps a case to the (ranks, micro-batches) in every commit's tests: every way to divide a batch with the MLP, and every
# task with each model.
IN_COMMITS = {
    "MULTI_LABEL-mlp": [(2, 1)],
    "REGRESSION-mlp": [(3, 2)],
    "CLASSIFICATION-mlp": [(None, 3)],
    "MULTI_LABEL-tabm": [(3, 2)],
    "REGRESSION-tabm": [(None, 3)],
    "CLASSIFICATION-tabm": [(2, 1)],
}


@pytest.mark.parametrize("ranks,accumulation", [(None, 1), (None, 3), (2, 1), (3, 2)])
@pytest.mark.all_tier(
    "each task is cut into pieces in other ways already",
    unless=lambda case, ranks, accumulation: (ranks, accumulation) in IN_COMMITS[case],
)
def test_losses_and_metrics(case, ranks, accumulation, tmp_path):
    skip_without_gpus(ranks)
    task, folder, text, losses, output, target, loss = case
    config = write_config(folder, text + f" accumulation: {accumulation}")
    np.testing.assert_allclose(trained_losses(config, tmp_path / "run", ranks=ranks), losses, rtol=1e-5)
    done = events(tmp_path / "run", "done")[0]
    assert done["val_loss"] == pytest.approx(loss, rel=1e-5)
    # Metrics that count predictions may depend on the last bits of the outputs.
    expected = metrics_of(task, output, target)
    for name, value in expected.items():
        assert done[f"val_{name}"] == pytest.approx(float(value), rel=1e-5 if task == "REGRESSION" else 0.02), name

    run = Run(["evaluate", tmp_path / "run"], ranks=ranks)
    assert run.status == DONE and all(f"{name} {done[f'val_{name}']:.4f}" in run.out for name in expected), run
    run = Run(["predict", tmp_path / "run", "--input", folder / "new.csv", "--output", tmp_path / "out.csv"], ranks=ranks)
    assert run.status == DONE, run
    header, *rows = (tmp_path / "out.csv").read_text().splitlines()
    values = np.loadtxt(rows, delimiter=",")
    assert values[:, 0].tolist() == list(range(HELD_OUT))
    if task == "REGRESSION":
        assert header == "index,value_0,value_1"
        np.testing.assert_allclose(values[:, 1:], output, rtol=1e-3, atol=1e-3)
    elif task == "MULTI_LABEL":
        assert header == "index,probability_0,probability_1,probability_2"
        np.testing.assert_allclose(values[:, 1:], output.sigmoid(), atol=1e-4)
    else:
        assert header == "index,label,probability"
        assert (values[:, 1] == output.argmax(1).numpy()).mean() > 0.98


TARGETS = np.random.default_rng(9).integers(0, 2, (40, 3))
# Maps a name to (the task, the targets, lines of the training, further lines of the evaluation). The last ten samples
# are held back.
UNDEFINED = {
    "one class": (
        "CLASSIFICATION",
        np.where(np.arange(40) < 30, np.arange(40) % 2, 1)[:, None],
        ["auc is not defined: all samples are of class 1"],
        ["quadratic_kappa is not defined: all labels and all predictions are of class 1"],
    ),
    "a label of no sample": (
        "MULTI_LABEL",
        np.where(np.arange(40)[:, None] < 30, TARGETS, TARGETS * [1, 0, 1]),
        ["auc: label 1 applies to no sample, so the mean is of the other 2 labels"],
        [],
    ),
    "no label of some": (
        "MULTI_LABEL",
        np.where(np.arange(40)[:, None] < 30, TARGETS, [1, 0, 1]),
        ["auc is not defined: each label applies to all samples or to none"],
        [],
    ),
    "negative numbers": ("REGRESSION", TARGETS - 3.5, [], ["rmsle is not defined: a target or an output is -1 or less"]),
}


@pytest.mark.parametrize("name", UNDEFINED)
@pytest.mark.all_tier("metrics_test.cc has all of these", unless=lambda name: name in ("one class", "a label of no sample"))
def test_what_is_not_defined_is_left_out_and_said(name, tmp_path):
    task, y, trained, evaluated = UNDEFINED[name]
    x = np.random.default_rng(4).normal(size=(40, 2))
    for part, rows in (("train", slice(30)), ("test", slice(30, 40))):
        table(tmp_path, f"{part}.csv", x[rows], y[rows] * 1.0, labels_first=False)
    columns = "" if task == "CLASSIFICATION" else f"label_columns: {y.shape[1]}"
    # A bias far from 0 makes all predictions of class 1.
    save_init(tmp_path, {"0.weight": torch.zeros(y.shape[1] if columns else 2, 2), "0.bias": torch.arange(y.shape[1] if columns else 2) * 9.0})
    config = write_config(
        tmp_path,
        f"""epochs: 2 init_from: "init.safetensors" data {{ train: "train.csv" validation: "test.csv" task: {task}
        csv {{ label_column: 2 {columns} }} }} model {{ name: "mlp" }} optimizer {{ lr: 1e-6 }}""",
    )
    run = train(config, tmp_path / "run")
    warnings = [line.partition("warning: ")[2] for line in run.err.splitlines()]
    assert run.status == DONE and "nan" not in run.out, run
    assert warnings == [f"validation: {line}" for line in trained], run  # once, though there were two evaluations
    run = Run(["evaluate", tmp_path / "run"])
    assert run.status == DONE and "nan" not in run.out, run
    assert run.err.splitlines() == trained + evaluated, run
    shown = json.loads(Run(["evaluate", tmp_path / "run", "--json"]).out)
    missing = {line.split(" is not")[0] for line in trained + evaluated if " is not defined: " in line}
    assert {key for key, value in shown.items() if value is None} == missing


@pytest.mark.parametrize(
    "text,status,words",
    [
        ("task: MULTI_LABEL csv { label_columns: 2 }", DATA, 'train.csv:1: column 2: label "0.5" is neither 0 nor 1'),
        ("task: REGRESSION csv { label_columns: 3 }", DATA, "train.csv:1: only 3 columns: a row needs a feature and 3 labels"),
        ("task: REGRESSION csv { label_column: 2 label_columns: 2 }", DATA, "2 label columns from data.csv.label_column 2 on: outside the 3 columns"),
        ("task: REGRESSION classes: 5 csv { label_columns: 2 label_column: 1 }", USAGE, "is 5 where data.csv.label_columns is 2"),
        ("csv { label_columns: 2 }", USAGE, "CLASSIFICATION has one: set data.task"),
    ],
)
def test_labels_that_are_none(text, status, words, tmp_path):
    (tmp_path / "train.csv").write_text("1.5,0.5,1\n2.5,1,0\n")
    text = text.replace("csv { label_columns: 2 }", "csv { label_column: -2 label_columns: 2 }")
    expect_refused(tmp_path, f'data {{ train: "train.csv" {text} }}', status, words)


def test_smoothing_is_for_classes(tmp_path):
    (tmp_path / "train.csv").write_text("1.5,0.5\n2.5,1\n")
    text = 'data { train: "train.csv" task: REGRESSION } model { label_smoothing: 0.1 }'
    expect_refused(tmp_path, text, USAGE, "model.label_smoothing: is for classes")


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        pytest.param(3, marks=pytest.mark.all_tier("three ranks standardise targets as one does")),
    ],
)
def test_standardised_targets(ranks, tmp_path):
    """Compares a training with one on targets that NumPy has standardised. Metrics and predictions must be in the
    targets' original unit."""
    skip_without_gpus(ranks)
    draw = np.random.default_rng(8)
    x = draw.normal(size=(90, 3)).round(4)
    y = (x @ draw.normal(size=(3, 2)) * [40, 0.01] + [500, -3] + draw.normal(size=(90, 2)) * [9, 0.002]).round(5)
    names = ["a", "b", "c", "u", "v"]
    fields = 'task: REGRESSION csv { header: true label: "u" label: "v" } validation_fraction: 0.3'
    runs = {}

    def trained(name, targets, more):
        write_table(tmp_path / f"{name}.csv", np.hstack([x, targets]).tolist(), names)
        text = f"""epochs: 8 global_batch: 20 data {{ train: "{name}.csv" {fields} {more} }} model {{ name: "mlp" mlp {{ hidden: [6] }} }}
            optimizer {{ type: ADAM lr: 0.03 }} log {{ every_steps: 1 }}"""
        run = train(write_config(tmp_path, text, f"{name}.pbtxt"), tmp_path / name, ranks=ranks)
        assert run.status == DONE, run
        output = tmp_path / f"{name}.out.csv"
        words = ["predict", tmp_path / name, "--input", tmp_path / f"{name}.csv", "--output", output]
        assert Run(words, ranks=ranks).status == DONE
        runs[name] = events(tmp_path / name, "eval")[-1]
        return np.array([[float(row["value_0"]), float(row["value_1"])] for row in rows_of(output)])

    raw = trained("raw", y, "standardize_targets: true")
    held_back = tmp_path / "held_back.csv"
    assert Run(["predict", tmp_path / "raw", "--held-back", "--output", held_back]).status == DONE
    rows = [int(row["index"]) for row in rows_of(held_back)]
    in_training = np.setdiff1d(np.arange(90), rows)
    mean, std = y[in_training].mean(0), y[in_training].std(0)
    by_numpy = trained("by_numpy", (y - mean) / std, "")
    np.testing.assert_allclose(raw, by_numpy * std + mean, rtol=1e-5)
    np.testing.assert_allclose(step_losses(tmp_path / "raw"), step_losses(tmp_path / "by_numpy"), rtol=1e-4)
    assert runs["raw"]["val_loss"] == pytest.approx(runs["by_numpy"]["val_loss"], rel=1e-4)
    assert runs["raw"]["val_r2"] == pytest.approx(runs["by_numpy"]["val_r2"], rel=1e-4)
    assert runs["raw"]["val_mae"] == pytest.approx(np.abs(raw[rows] - y[rows]).mean(), rel=1e-4)


def test_mistakes_with_standardised_targets(tmp_path):
    write_table(tmp_path / "train.csv", [[1, 0], [2, 1], [4, 0]], ["x", "y"])
    data = 'train: "train.csv" csv { header: true label: "y" } standardize_targets: true'
    expect_refused(tmp_path, f"data {{ {data} }}", USAGE, "data.standardize_targets", "is for REGRESSION")
    data = data.replace("standardize_targets: true", "target_mean: 3")
    expect_refused(tmp_path, f"data {{ task: REGRESSION {data} }}", USAGE, "data.target_mean", "leave it out")
