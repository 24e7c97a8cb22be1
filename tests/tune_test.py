"""`lockstep tune`: what it tries is what `train` then does, it says what it found, and nothing stays behind."""

import json
import math
import os
import signal
import subprocess

import pytest

from harness import (
    CHECKPOINT,
    DIGITS,
    DONE,
    INTERRUPTED,
    PEER,
    STOPPED,
    USAGE,
    Run,
    command_of,
    events,
    expect_error,
    mpirun,
    processes_of,
    ranks_of,
    skip_without_gpus,
    train,
    wait_until,
    wait_until_gone,
    write_config,
)

CONFIG = """global_batch: 64 epochs: 4 seed: 3 data { train: "DIGITS" validation_fraction: 0.2 csv { scale: 0.0625 } }
    model { name: "mlp" mlp { hidden: [64] } } optimizer { type: ADAMW lr: 1e-5 } schedule { type: COSINE }
    observe { on_alert: "touch alerted" }"""


def config_in(folder, more=""):
    (folder / "runs").mkdir()
    text = CONFIG.replace("DIGITS", str(DIGITS))
    return write_config(folder, f'{text} run_dir: "{folder}/runs/mine" {more}')


def tune(config, *words, ranks=None):
    return Run(["tune", config, *words], ranks=ranks)


def lines_of(run):
    return [json.loads(line) for line in run.out.splitlines()]


@pytest.mark.all_tier(unless=lambda ranks: ranks == 1)
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_tried_is_what_is_trained(tmp_path, ranks):
    """The loss of a trial is the loss of a training with these settings, and the suggestion is the best of them."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    run = tune(config, "--json", ranks=ranks)
    assert run.status == DONE, run
    curve, *trials, found = lines_of(run)
    assert list((tmp_path / "runs").iterdir()) == [] and not (tmp_path / "alerted").exists()
    # A range test of the digits goes from a loss of ln 10 down and up again.
    assert abs(curve["range_test"][0][1] - math.log(10)) < 0.3
    assert 1e-7 < curve["falls_from"] < curve["lowest_at"] <= curve["grows_from"] <= 10
    assert trials[0]["lr"] == 1e-5 and found["whole_run"]
    best = min(trials, key=lambda trial: trial.get("val_loss", math.inf))
    assert found["suggestion"] == {"optimizer.lr": best["lr"], "schedule.warmup_steps": best["warmup_steps"]}
    # One of them is the best rate without warm-up.
    assert [trial["warmup_steps"] for trial in trials] == [0, *[4] * (len(trials) - 2), 0]
    # The digits' rate is no secret: half of the samples cannot be told apart at 1e-5, and nearly all at the best one.
    assert found["val_loss"] < 0.5 * trials[0]["val_loss"]
    # The user's config with what was found says all of it.
    assert found["config"] == str(tmp_path / "config.tuned.pbtxt")
    trained = train(found["config"], tmp_path / "runs/mine", ranks=ranks)
    assert trained.status == DONE, trained
    assert events(tmp_path / "runs/mine", "eval")[-1]["val_loss"] == found["val_loss"]


def test_it_tells_what_it_does(tmp_path):
    config = config_in(tmp_path)
    run = tune(config, "--set", "optimizer.lr=1e20", "--set", "optimizer.type=SGD")
    assert run.status == DONE, run
    lines = run.out.splitlines()
    assert lines[0].startswith("range test: 240 steps, ") and lines[1].split() == ["lr", "loss"]
    (header,) = (i for i, line in enumerate(lines) if line.split() == ["lr", "warm-up", "steps", "val_loss", "seconds"])
    # The user's own rate diverges, which is said and stops nothing.
    assert lines[header + 1].split()[0] == "1e+20" and "yours: step " in lines[header + 1], run
    assert "suggestion: optimizer.lr " in run.out
    # The last line is a command that trains with it.
    command = [word.strip("'") for word in lines[-1].split()]
    assert command[1:3] == ["train", str(tmp_path / "config.tuned.pbtxt")] and "optimizer.lr=1e20" not in command
    text = (tmp_path / "config.tuned.pbtxt").read_text()
    assert "# lr was 1e+20; now " in text and "optimizer { type: ADAMW lr: " in text, text
    assert Run(command[1:]).status == DONE


@pytest.mark.all_tier
def test_a_config_that_cannot_be_bettered_gets_no_other(tmp_path):
    """A second is over after the user's own rate, or soon after."""
    config = config_in(tmp_path)
    run = tune(config, "--json", "--time", "1", "--set", "optimizer.lr=0.02", "--set", "schedule.warmup_steps=4")
    assert run.status == DONE, run
    *_, found = lines_of(run)
    is_users = found["suggestion"]["optimizer.lr"] == 0.02
    assert ("config" in found) == (not is_users) == (tmp_path / "config.tuned.pbtxt").exists()


@pytest.mark.all_tier
def test_short_trainings_are_said(tmp_path):
    run = tune(config_in(tmp_path), "--time", "4", "--set", "epochs=100000")
    assert run.status == DONE, run
    assert "of the run's 2300000 steps" in run.out and "--time 16" in run.out


@pytest.mark.all_tier(unless=lambda sent: sent == signal.SIGINT)
@pytest.mark.parametrize("sent, status", [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, STOPPED)])
def test_an_interrupt_keeps_what_it_has(tmp_path, sent, status):
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--time", "600", "--set", "epochs=500"])
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1) as process:
        seen = ""
        while " yours\n" not in seen:
            seen += process.stdout.readline()
        wait_until(lambda: processes_of(tmp_path / "runs"))
        process.send_signal(sent)
        rest, said = process.communicate()
    assert process.returncode == status and said == "", (rest, said)
    assert "nothing better was found than yours: optimizer.lr 1e-05" in rest
    assert list((tmp_path / "runs").iterdir()) == []
    wait_until_gone(tmp_path / "runs")


@pytest.mark.all_tier
def test_nothing_stays_of_one_that_is_killed(tmp_path):
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--time", "600", "--set", "epochs=100000"])
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_until(lambda: processes_of(tmp_path / "runs"))
        process.kill()
    wait_until_gone(tmp_path / "runs")
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert tune(config).status == DONE
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_trial_that_fails(tmp_path):
    """A rank that is killed says nothing of a rate."""
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--time", "600", "--set", "epochs=100000"], ranks=2)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(ranks_of(tmp_path / "runs")) == 2)
        os.kill(ranks_of(tmp_path / "runs")[1], signal.SIGKILL)
        printed, said = process.communicate()
    assert process.returncode == PEER, (printed, said)
    assert said.count("\n") == 1 and "a trial failed: " in said, said
    assert list((tmp_path / "runs").iterdir()) == []


def test_labels_that_say_nothing(tmp_path):
    text = """data { format: SYNTHETIC input_shape: 8 classes: 3 } model { name: "mlp" } global_batch: 64
        optimizer { type: SGD }"""
    config = write_config(tmp_path, f'{text} run_dir: "{tmp_path}/runs/mine"')
    expect_error(tune(config), USAGE, "the loss falls at no learning rate between 1e-07 and 10")
    assert list((tmp_path / "runs").iterdir()) == []


def test_wrong_inputs(tmp_path):
    config = config_in(tmp_path)
    expect_error(tune(config, "--time", "0"), USAGE, "--time")
    expect_error(tune(tmp_path / "none.pbtxt"), USAGE, "none.pbtxt")
    expect_error(tune(config, "--set", "optimizer.lr=fast"), USAGE, "optimizer.lr")
    expect_error(Run(["--restarts", "2", "tune", config]), USAGE, "--restarts")
    expect_error(Run(["tune", config], launcher=mpirun(1)), USAGE, "tune inside mpirun")
    expect_error(tune(config, "--set", f"run_dir={config}/mine"), USAGE, f"{config}: cannot be made")
    expect_error(tune(config, "--set", "model.name=none"), USAGE, "none")
    expect_error(tune("/dev/null"), USAGE, "/dev/null: tune writes a file beside the config")
    (tmp_path / "config.tuned.pbtxt").mkdir()
    expect_error(tune(config), CHECKPOINT, "config.tuned.pbtxt: cannot be written: it is a folder")
    assert list((tmp_path / "runs").iterdir()) == []
