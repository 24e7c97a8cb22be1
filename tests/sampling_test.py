"""Tests data.sampling: the loss of an epoch that does not change the weights shows how often each sample was drawn."""

import numpy as np
import pytest

from harness import DONE, Run, events, expect_refused, rows_of, sets, skip_without_gpus, train, write_config, write_table

RARE, COMMON = 30, 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with train.csv, which has different rows of a rare class, and identical rows of a common one.
    `weight` is 1 for every third of the rare rows, 0 for the other rare rows, and 0.5 for the common rows."""
    path = tmp_path_factory.mktemp("sampling")
    draw = np.random.default_rng(4)
    rows = [[*draw.normal(size=3).round(4), 1, int(i % 3 == 0)] for i in range(RARE)] + [[0.5, -1, 2, 0, 0.5]] * COMMON
    order = draw.permutation(len(rows))
    write_table(path / "train.csv", [rows[i] for i in order], ["a", "b", "c", "y", "weight"])
    return path


def config_text(sampling, more=""):
    return f"""epochs: 1 global_batch: 16 {more} optimizer {{ type: SGD lr: 1e-12 }} log {{ every_steps: 1 }}
        data {{ train: "train.csv" csv {{ header: true label: "y" ignore: "weight" }} sampling {{ {sampling} }} }}
        model {{ name: "mlp" mlp {{ hidden: [5] }} }}"""


def losses_of_rows(folder, run):
    """Returns (the loss of each row, the rows)."""
    done = Run(["predict", run, "--input", "train.csv", "--output", "p.csv", "--probabilities"], cwd=folder)
    assert done.status == DONE, done
    rows = rows_of(folder / "train.csv")
    shares = [float(p[f"probability_{row['y']}"]) for p, row in zip(rows_of(folder / "p.csv"), rows, strict=True)]
    return -np.log(shares), rows


@pytest.mark.parametrize("ranks, accumulation", [(None, 1), (2, 1), (2, 3)])
def test_classes_are_drawn_alike(ranks, accumulation, folder, tmp_path):
    skip_without_gpus(ranks)
    config = write_config(folder, config_text("by: BALANCED", f"accumulation: {accumulation}"))
    assert train(config, tmp_path / "run", ranks=ranks, cwd=folder).status == DONE
    (epoch,) = events(tmp_path / "run", "epoch")
    losses, rows = losses_of_rows(folder, tmp_path / "run")
    is_rare = np.array([row["y"] == "1" for row in rows])
    # 60 of the 120 draws are rare rows: each of the 30 is drawn twice.
    assert epoch["train_loss"] == pytest.approx((losses[is_rare].mean() + losses[~is_rare].mean()) / 2, rel=2e-6)


def test_rows_are_drawn_by_their_weights(folder, tmp_path):
    config = write_config(folder, config_text('by: WEIGHTED column: "weight"'))
    assert train(config, tmp_path / "run", cwd=folder).status == DONE
    (epoch,) = events(tmp_path / "run", "epoch")
    losses, rows = losses_of_rows(folder, tmp_path / "run")
    weights = np.array([float(row["weight"]) for row in rows])
    # The ten rare rows with weight 1 have 10/55 of the total weight, so each is drawn two or three times in 120 draws.
    rare = losses[(weights == 1)]
    common = losses[weights == 0.5].mean()
    least, most = (120 * common + (count * (rare - common)).sum() for count in (np.full(10, 2), np.full(10, 3)))
    counts = 120 * 10 / 55
    mean = (counts * rare.mean() + (120 - counts) * common) / 120
    assert min(least, most) / 120 <= epoch["train_loss"] <= max(least, most) / 120
    assert epoch["train_loss"] == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    "sampling, more, parts",
    [
        ("by: WEIGHTED", "", ["data.sampling.column", "name a column"]),
        ('column: "weight"', "", ["data.sampling.column", "is for WEIGHTED"]),
        ('by: WEIGHTED column: "wait"', "", ["data.sampling.column", "wait", "weight"]),
        ('by: WEIGHTED column: "a"', "", ["data.sampling", "the weight of sample"]),
        ("by: BALANCED", "data.shuffle=false", ["data.shuffle", "leave it out"]),
        ("by: BALANCED", "data.task=REGRESSION", ["data.sampling.by", "CLASSIFICATION"]),
    ],
)
def test_mistakes(sampling, more, parts, folder):
    config = write_config(folder, config_text(sampling))
    run = Run(["train", config, *(sets(more) if more else [])], cwd=folder)
    assert run.status != DONE and len(run.error_lines) == 1, run
    assert all(part in run.error_lines[0] for part in parts), run


def test_a_weight_that_is_no_number(tmp_path):
    write_table(tmp_path / "train.csv", [[1, 0, 2], [3, 1, "heavy"], [2, 0, 1]], ["x", "y", "w"])
    text = config_text('by: WEIGHTED column: "w"').replace('ignore: "weight"', 'ignore: "w"')
    expect_refused(tmp_path, text, 3, "data.sampling.column", "row 1", '"heavy"')
