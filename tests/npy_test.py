"""Tests arrays that NumPy saved: for every dtype and task, the losses are those from a CSV file with the same numbers.
Also tests predictions for arrays."""


import numpy as np
import pytest

from harness import USAGE, expect_refused, predict, sets, trained_losses, write_config

TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
TASKS = ["CLASSIFICATION", "MULTI_LABEL", "REGRESSION"]


def losses_on(folder, name, data, *options):
    """Returns the losses of a short training on `data`, in the run folder `name`."""
    config = write_config(folder, f"seed: 3 global_batch: 8 epochs: 4 log {{ every_steps: 1 }} data {{ {data} }}")
    return trained_losses(config, folder / name, *options)


# The (dtype, task, version of the .npy format) in every commit's tests: every task, every version, and some dtypes.
IN_COMMITS = [
    ("u1", "CLASSIFICATION", 1),
    ("u8", "CLASSIFICATION", 1),
    ("f8", "REGRESSION", 1),
    ("?", "MULTI_LABEL", 1),
    ("f4", "MULTI_LABEL", 2),
    ("f4", "REGRESSION", 3),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("version,dtype", [((1, 0), dtype) for dtype in TYPES] + [((2, 0), "f4"), ((3, 0), "f4")])
@pytest.mark.all_tier(
    "a unit test converts each type, too",
    unless=lambda dtype, task, version: (dtype, task, version[0]) in IN_COMMITS,
)
def test_every_type_as_from_csv(tmp_path, task, version, dtype):
    random = np.random.default_rng(1)
    x = random.integers(0, 2 if dtype == "?" else 100, (30, 5)).astype(dtype)
    y = random.integers(0, 2, (30, 1 if task == "CLASSIFICATION" else 2)).astype("i4" if dtype != "u8" else "u8")
    for name, array in (("x", x), ("y", y)):
        with open(tmp_path / f"{name}.npy", "wb") as file:
            np.lib.format.write_array(file, array, version=version)
    np.savetxt(tmp_path / "xy.csv", np.concatenate([x.astype("f8"), y], axis=1), fmt="%.9g", delimiter=",")
    columns = "" if task == "CLASSIFICATION" else "label_column: 5 label_columns: 2"
    expected = losses_on(tmp_path, "csv", f'train: "xy.csv" task: {task} csv {{ {columns} }}')
    assert losses_on(tmp_path, "npy", f'format: NPY train: "x.npy" train: "y.npy" task: {task}') == expected


def test_pixels_in_either_order(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 9, 9)).astype("u1")
    np.save(tmp_path / "before.npy", images)
    np.save(tmp_path / "behind.npy", np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    np.save(tmp_path / "y.npy", np.arange(20) % 4)
    seen = [
        losses_on(tmp_path, name, f'format: NPY train: "{name}.npy" train: "y.npy" npy {{ kind: PIXELS }} mean: 0.5')
        for name in ("before", "behind")
    ]
    np.testing.assert_allclose(*seen, rtol=1e-6)


def test_predicts(tmp_path):
    random = np.random.default_rng(1)
    x = random.normal(size=(200, 4)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", (x[:, 0] > 0).astype("i8"))
    data = 'format: NPY train: "x.npy" train: "y.npy" validation_fraction: 0.2'
    losses_on(tmp_path, "run", data, *sets("epochs=60"))
    np.save(tmp_path / "new.npy", np.array([[3, 0, 0, 0], [-3, 0, 0, 0]], "f8"))
    assert [int(row["label"]) for row in predict(tmp_path / "run", tmp_path / "new.npy")] == [1, 0]


def test_names_wrong_configs(tmp_path):
    def error_of(data, *parts):
        expect_refused(tmp_path, f"data {{ {data} }}", USAGE, *parts)

    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    error_of('format: NPY train: "x.npy"', "data.train: NPY takes two files: inputs, targets")
    error_of('format: NPY train: "x.npy" train: "y.npy"', "data.train: no such file: ", "y.npy")
    error_of('train: "x.npy" npy { kind: PIXELS }', "data.npy: has no meaning for format CSV")
    error_of('format: NPY train: "x.npy" train: "x.npy" mean: 0.5', "data.mean: is for pixels")
