"""A data set that a program brings itself is trained on, evaluated and predicted like those of the config's formats."""

import os

import pytest

from harness import DATA, DIGITS, DONE, USAGE, Run, expect_error, losses_by_step, skip_without_gpus, write_config

FAULTY = os.path.abspath(os.environ["FAULTY"])
CSV = f'train: "{DIGITS}" csv {{ scale: 0.0625 }}'
# That of tests/faulty_model.cc: the same rows.
OWN = f'format: OWN train: "{DIGITS}" own {{ name: "faulty" option {{ key: "rank" value: "-2" }} }}'


def run_on(folder, data, ranks=None, name="run", more=""):
    config = write_config(
        folder,
        f"""data {{ {data} validation_fraction: 0.2 {more} }} model {{ name: "mlp" mlp {{ hidden: [24] }} }}
        deterministic: true epochs: 3 log {{ every_steps: 1 }} run_dir: "{folder}/{name}" """,
    )
    return Run(["train", config], ranks=ranks, program=FAULTY)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier(unless=lambda ranks: ranks == 2)
def test_it_is_like_the_others(tmp_path, ranks):
    skip_without_gpus(ranks)
    for name, data in (("own", OWN), ("csv", CSV)):
        run = run_on(tmp_path, data, ranks, name)
        assert run.status == DONE, run
    assert losses_by_step(tmp_path / "own") == losses_by_step(tmp_path / "csv")
    results = []
    for name in ("own", "csv"):
        evaluation = Run(["evaluate", tmp_path / name], ranks=ranks, program=FAULTY)
        assert evaluation.status == DONE, evaluation
        output = tmp_path / f"{name}.csv"
        prediction = Run(["predict", tmp_path / name, "--input", DIGITS, "--output", output], ranks=ranks, program=FAULTY)
        assert prediction.status == DONE, prediction
        results.append((evaluation.out, output.read_text()))
    assert results[0] == results[1]
    assert "(360 samples)" in results[0][0]


@pytest.mark.parametrize(
    "own,status,part",
    [
        ('name: "fualty"', USAGE, 'data.own.name: this program brings no data set "fualty"; did you mean "faulty"? (known: faulty)'),
        ('name: "faulty" option { key: "att" value: "1" }', USAGE, 'data.own.option: the data set "faulty" has no option "att"; did you mean "at"?'),
        ('name: "faulty" option { key: "at" value: "x" }', USAGE, 'data.own.option "at": "x" is no integer'),
        ('name: "faulty" kind: PIXELS', DATA, 'the data set "faulty" has samples of Float where data.own.kind is PIXELS'),
        ("", USAGE, "data.own.name: name the data set"),
    ],
)
def test_what_does_not_fit(tmp_path, own, status, part):
    run = run_on(tmp_path, f'format: OWN train: "{DIGITS}" own {{ {own} }}')
    expect_error(run, status, part)


def test_a_program_that_brings_none(tmp_path):
    config = write_config(tmp_path, f'run_dir: "{tmp_path}/run" data {{ format: OWN train: "{DIGITS}" own {{ name: "mine" }} }}')
    expect_error(Run(["train", config]), USAGE, 'this program brings no data set "mine" (known: none)')


def test_another_task(tmp_path):
    run = run_on(tmp_path, OWN, more="task: REGRESSION")
    expect_error(run, DATA, 'the data set "faulty" is for another task than data.task')


def test_options_without_the_format(tmp_path):
    expect_error(run_on(tmp_path, CSV + ' own { name: "faulty" }'), USAGE, "data.own", "has no meaning for format CSV")
