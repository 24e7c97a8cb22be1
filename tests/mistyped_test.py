"""Tests commands as a new user mistypes them: each gives one error line, which names the remedy."""

import shutil

import pytest

from harness import DIGITS, DONE, USAGE, Run, expect_error, train, write_config

MISTYPED = [
    ("trian train.pbtxt", 'did you mean "train"?'),
    ("help trian", 'did you mean "train"?'),
    ("resume runs/digits", "the same lockstep train command goes on"),
    ("train", "CONFIG is required"),
    ("train train.pbtx", "train.pbtx: no config can be read from it"),
    ("train digits.csv", 'a config looks like this: data { train: "digits.csv" }'),
    ("train runs/digits", "it is a folder"),
    ("train train.pbtxt --epochs 3", "set with --set epochs=VALUE"),
    ("train train.pbtxt epochs=3", "set with --set epochs=3"),
    ("train train.pbtxt --fold 5", 'did you mean "--folds"?'),
    ("train train.pbtxt --folds 1", "not in range 2 to 1000"),
    ("train train.pbtxt --set epoch=3", 'did you mean "epochs"?'),
    ("train train.pbtxt --set lr=0.1", 'did you mean "optimizer.lr"?'),
    ("train train.pbtxt --set epochs=three", "Expected integer"),
    ("train train.pbtxt --set optimizer.lr=-1", "-1 is less than 0"),
    ("train train.pbtxt --set optimizer.type=adamw2", 'did you mean "ADAMW"?'),
    ("train train.pbtxt --set precision=bf61", 'did you mean "BF16"?'),
    ("train train.pbtxt --set data.train=nothere.csv", "no such file: "),
    ("train train.pbtxt --set epochs", 'write --set optimizer.lr=0.01'),
    ("train -n 0 train.pbtxt", "1 to 4096"),
    ("predict runs/digist --input digits.csv", "lockstep runs FOLDER lists them"),
    ("predict runs/digits digits.csv", "named with --input digits.csv"),
    ("predict runs/digits", "--held-back"),
    ("predict runs/digits --input digits.csv --output /nowhere/out.csv", "/nowhere: No such file"),
    ("predict runs/digits --input digits.csv --format json", "csv,jsonl,npy"),
    ("evaluate runs", "name a run folder"),
    ("evaluate runs/digits@7", "there is no checkpoint of step 7 (there are 23)"),
    ("export runs/digits", "--output is required"),
    ("new nothere.csv --output mine.pbtxt", "nothere.csv"),
    ("new digits.csv --output train.pbtxt", "write another one with --output FILE"),
    ("new digits.csv --lable 3", 'did you mean "--label"?'),
    ("runs nothere", "name the folder in which the run folders lie"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mistyped")
    shutil.copy(DIGITS, path / "digits.csv")
    text = 'epochs: 1 data { train: "digits.csv" csv { scale: 0.0625 } validation_fraction: 0.2 } model { name: "mlp" mlp { } } optimizer { type: ADAMW }'
    assert train(write_config(path, text, "train.pbtxt"), path / "runs/digits", cwd=path).status == DONE
    return path


@pytest.mark.parametrize("command, cure", MISTYPED, ids=[command for command, _ in MISTYPED])
def test_the_answer_names_the_cure(command, cure, folder):
    run = Run(command.split(), cwd=folder)
    expect_error(run, run.status if run.status > USAGE else USAGE, cure)
