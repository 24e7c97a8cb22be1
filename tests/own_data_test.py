"""Tests that a program's own data set is trained on, evaluated and predicted like the data sets of the config's
formats."""


import pytest

from harness import (
    DATA,
    DIGITS,
    DONE,
    USAGE,
    Run,
    digits_config,
    digits_data,
    expect_error,
    expect_refused,
    faulty_model,
    losses_by_step,
    path_of,
    predict,
    skip_without_gpus,
    train,
    write_config,
)

FAULTY = path_of("FAULTY")
HELD_BACK = "validation_fraction: 0.2"
# The data set of tests/faulty_model.cc has the digits' rows. No rank has the number -2, so no read fails.
FAULTY_DATA = faulty_model(rank=-2)


def own_data(own, more=""):
    return f'data {{ format: OWN train: "{DIGITS}" own {{ {own} }} {HELD_BACK} {more} }}'


def train_on(folder, data, name="run", ranks=None):
    config = digits_config(data=data, model='name: "mlp" mlp { hidden: [24] }', epochs=3)
    return train(write_config(folder, config), folder / name, ranks=ranks, program=FAULTY)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("a test on one rank is a part of the test on two", unless=lambda ranks: ranks == 2)
def test_it_is_like_the_others(tmp_path, ranks):
    skip_without_gpus(ranks)
    for name, data in (("own", own_data(FAULTY_DATA)), ("csv", digits_data(HELD_BACK))):
        run = train_on(tmp_path, data, name, ranks)
        assert run.status == DONE, run
    assert losses_by_step(tmp_path / "own") == losses_by_step(tmp_path / "csv")
    results = []
    for name in ("own", "csv"):
        evaluation = Run(["evaluate", tmp_path / name], ranks=ranks, program=FAULTY)
        assert evaluation.status == DONE, evaluation
        results.append((evaluation.out, predict(tmp_path / name, DIGITS, ranks=ranks, program=FAULTY)))
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
    expect_error(train_on(tmp_path, own_data(own)), status, part)


def test_a_program_that_brings_none(tmp_path):
    expect_refused(tmp_path, own_data('name: "mine"'), USAGE, 'this program brings no data set "mine" (known: none)')


def test_another_task(tmp_path):
    run = train_on(tmp_path, own_data(FAULTY_DATA, "task: REGRESSION"))
    expect_error(run, DATA, 'the data set "faulty" is for another task than data.task')


def test_options_without_the_format(tmp_path):
    run = train_on(tmp_path, digits_data('own { name: "faulty" }'))
    expect_error(run, USAGE, "data.own", "has no meaning for format CSV")
