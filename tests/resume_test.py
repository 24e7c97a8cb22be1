"""Tests that a run resumes from its newest checkpoint as if it had never ended: with the same number of ranks it gives
the same bits, and with another number the same samples, and the same losses up to rounding.

A run that was never interrupted leaves its checkpoints behind. Some of these checkpoints are each copied into a folder
of their own, in which a second run resumes, and both runs must end alike. (checkpoint_fault_test.py really kills runs.)
"""

import json
import os
import random
import re
import shutil

import numpy as np
import pytest
import safetensors.torch

from harness import (
    CHECKPOINT,
    DATA,
    DEVICE,
    DIGITS,
    DONE,
    SMALL_MLP,
    USAGE,
    Run,
    Started,
    checkpoint_folder,
    checkpoints,
    command_of,
    digits_config,
    digits_data,
    events,
    expect_error,
    faulty_model,
    lines_of,
    losses_by_step,
    noisy_digits,
    path_of,
    run_ranks,
    sets,
    skip_without_gpus,
    train,
    weight_bytes,
    weights_of,
    write_config,
)

FAULTY = path_of("FAULTY")
# Each test draws this number of a run's checkpoints, and resumes from each drawn checkpoint. The whole sweep,
# `./lockstep test --soak resume`, draws 50.
SAMPLES = int(os.environ.get("RESUME_SAMPLES", "2"))

COMMON = "deterministic: true log { every_steps: 1 } "


def digits(data="", model=SMALL_MLP, optimizer="type: ADAMW lr: 0.003", more=""):
    """Returns a config of 58 steps (46 with `validation_fraction: 0.2`), with dropout in the default model."""
    more += " checkpoint { every_steps: 1 keep: 100 }"
    return digits_config(more, digits_data(data), model, optimizer, epochs=2)


def with_checkpoint_only(run_dir, step, target):
    """Makes `target` a run folder in the state of `run_dir` right after the checkpoint of `step`. Returns `target`."""
    (target / "checkpoints").mkdir(parents=True)
    shutil.copytree(checkpoint_folder(run_dir, step), checkpoint_folder(target, step))
    shutil.copy(run_dir / "config.pbtxt", target)
    lines = [line + "\n" for line in lines_of((run_dir / "log.jsonl").read_text())]
    kept = [line for line in lines if json.loads(line).get("step", 0) <= step]
    (target / "log.jsonl").write_text("".join(kept))
    return target


def expect_same_end(run_dir, expected):
    """Checks that both runs ended with the same bits."""
    assert losses_by_step(run_dir) == losses_by_step(expected)
    last = checkpoints(expected)[-1]
    saved, wanted = checkpoint_folder(run_dir, last), checkpoint_folder(expected, last)
    for name in sorted(os.listdir(wanted)):
        # The manifest has the names of the run folder and of the program, so it may differ.
        if name != "manifest.pb":
            assert (saved / name).read_bytes() == (wanted / name).read_bytes()
    assert weight_bytes(run_dir) == weight_bytes(expected)
    for done, expected_done in zip(events(run_dir, "done"), events(expected, "done"), strict=True):
        timings = ("time", "first_step_s", "samples_per_s", "total_s", "data_wait")
        assert {k: v for k, v in done.items() if k not in timings} == {
            k: v for k, v in expected_done.items() if k not in timings
        }


def expect_bitwise(tmp_path, config_text, ranks=None):
    skip_without_gpus(ranks)
    config = write_config(tmp_path, config_text)
    whole = tmp_path / "whole"
    run = train(config, whole, ranks=ranks)
    assert run.status == DONE, run
    # If steps are faster than the disk, some checkpoints are skipped.
    steps = checkpoints(whole)[:-1]
    assert steps
    for step in random.Random(config_text).sample(steps, min(SAMPLES, len(steps))):
        part = with_checkpoint_only(whole, step, tmp_path / f"from-{step}")
        run = train(config, part, ranks=ranks)
        assert run.status == DONE, run
        assert [e["step"] for e in events(part, "resume")] == [step]
        expect_same_end(part, whole)


def values_of(message):
    """Returns the values that the field `type` of a config message may have."""
    template = Run(["config", "--template"]).out
    return re.search(rf"\n{message} {{\n  # One of (.*)\.\n  type:", template)[1].split(", ")


@pytest.mark.parametrize("optimizer", values_of("optimizer"))
@pytest.mark.all_tier(
    "the same code keeps the moments of other optimizers in the same file",
    unless=lambda optimizer: optimizer in ("SGD", "ADAMW"),
)
def test_every_optimizer(tmp_path, optimizer):
    expect_bitwise(
        tmp_path,
        digits(
            optimizer=f"type: {optimizer} lr: 0.003 ema_decay: 0.9 clip_norm: 0.5 weight_decay: 0.01"
            + (" momentum: 0.9" if optimizer in ("SGD", "LARS") else "")
        ),
    )


@pytest.mark.parametrize("schedule", values_of("schedule"))
@pytest.mark.all_tier(
    "the same code keeps other schedules in the same file",
    unless=lambda schedule: schedule in ("COSINE", "PLATEAU"),
)
def test_every_schedule(tmp_path, schedule):
    """Tests each schedule with a learning rate that is so high that PLATEAU has to lower it."""
    own = {"STEP": "every_steps: 9", "PLATEAU": "patience: 1"}.get(schedule, "")
    expect_bitwise(
        tmp_path,
        digits(
            data="validation_fraction: 0.2",
            optimizer="type: SGD lr: 0.9 momentum: 0.9",
            more=f"schedule {{ type: {schedule} warmup_steps: 5 {own} }}",
        ).replace("epochs: 2", "epochs: 6"),
    )


@pytest.mark.parametrize(
    "ranks,optimizer",
    [(2, "type: ADAM"), (3, "type: ADAMW shard: true"), (2, "type: SGD momentum: 0.9 shard: true")],
)
@pytest.mark.all_tier("three ranks with sharded moments keep all that these keep", unless=lambda ranks: ranks == 3)
def test_several_ranks(tmp_path, ranks, optimizer):
    """Tests ranks that each have their own random numbers, and with `shard` also their own part of moments and
    averages."""
    expect_bitwise(
        tmp_path,
        digits(optimizer=f"{optimizer} lr: 0.003 ema_decay: 0.9", more="accumulation: 2 ddp { bucket_bytes: 4096 }"),
        ranks=ranks,
    )


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank keeps what each of two keeps", unless=lambda ranks: ranks == 2)
def test_augmented_images_through_batch_norm(tmp_path, ranks):
    """Tests BatchNorm statistics, of which each rank has its own until the end of the epoch."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (320, 3073), dtype=np.uint8)
    images[:, 0] %= 10
    images.tofile(tmp_path / "train.bin")
    expect_bitwise(
        tmp_path,
        COMMON
        + """data { format: CIFAR10 train: "train.bin"
          augment { mixup: 0.3 brightness: 0.2 } }
        model { name: "resnet" resnet { depth: 18 } } optimizer { type: SGD lr: 0.05 momentum: 0.9 }
        global_batch: 32 epochs: 2 max_steps: 16 checkpoint { every_steps: 1 keep: 100 }""",
        ranks=ranks,
    )


def test_batch_norm_on_another_number_of_ranks(tmp_path):
    """Checks that the saved buffers of ranks that no longer exist are ignored."""
    skip_without_gpus(2)
    config = write_config(tmp_path, digits(model=faulty_model(norm=1)))
    run_dir = tmp_path / "run"
    for epochs, ranks in ((1, 2), (2, None), (3, 2)):
        run = train(config, run_dir, *sets(f"epochs={epochs}"), ranks=ranks, program=FAULTY)
        assert run.status == DONE, run
    assert [e["ranks"] for e in events(run_dir, "resume")] == [2, 1]


@pytest.mark.skipif(DEVICE != "CUDA", reason="FP16 is for GPUs: its loss scale lives there")
def test_loss_scale(tmp_path):
    expect_bitwise(tmp_path, digits(more="precision: FP16 loss_scale { growth_interval: 7 }"))


# ---- Other numbers of ranks ---------------------------------------------------------------------


def test_another_number_of_ranks_and_accumulation(tmp_path):
    """Resumes a run of 4 ranks on 2, then on 3 and on 1. Every epoch must take each sample once, and the losses must be
    those of a run on one rank."""
    skip_without_gpus(4)
    samples, batch = 480, 48
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.arange(samples), rng.normal(size=(samples, 7)), rng.integers(0, 3, samples)])
    rows[:, 0] /= samples  # the sample's number as a feature, by which the recorded samples are identified
    np.savetxt(tmp_path / "train.csv", rows, fmt=["%.9g"] * 8 + ["%d"], delimiter=",")
    text = f"""global_batch: {batch} epochs: 4 log {{ every_steps: 1 }}
    data {{ train: "train.csv" }} optimizer {{ type: ADAM lr: 0.01 }} model {{ %s }}"""
    config = write_config(tmp_path, text % faulty_model(record=tmp_path / "record-"))
    whole = tmp_path / "whole"
    run = train(config, whole, program=FAULTY)
    assert run.status == DONE, run

    part = tmp_path / "part"
    taken = []  # the numbers of the samples that each step took
    first = 0
    for (ranks, accumulation), last in zip([(4, 1), (2, 3), (3, 2), (None, 1)], [7, 17, 31, 40], strict=True):
        for file in tmp_path.glob("record-*"):
            file.unlink()
        words = sets(f"accumulation={accumulation}", f"max_steps={last}")
        run = train(config, part, *words, ranks=ranks, program=FAULTY)
        assert run.status == DONE, run
        lines = [(tmp_path / f"record-{rank}").read_text().splitlines() for rank in range(ranks or 1)]
        for step in range(last - first):
            micro = range(step * accumulation, (step + 1) * accumulation)
            numbers = [float(word) for of_rank in lines for i in micro for word in of_rank[i].split()]
            taken.append([round(samples * number) for number in numbers])
        first = last
    steps_per_epoch = samples // batch
    for epoch in range(4):
        of_epoch = sum(taken[epoch * steps_per_epoch : (epoch + 1) * steps_per_epoch], [])
        assert sorted(of_epoch) == list(range(samples)), epoch
    assert [e["ranks"] for e in events(part, "resume")] == [4, 2, 3]
    expected, found = losses_by_step(whole), losses_by_step(part)
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "before,after",
    [((2, "true"), (3, "true")), ((2, "true"), (None, "false")), ((None, "false"), (2, "true"))],
)
@pytest.mark.all_tier(
    "pieces of two ranks are cut for three on every commit, and whole state is one piece",
    unless=lambda before, after: before[0] and after[0],
)
def test_sharded_state_is_cut_anew(tmp_path, before, after):
    """Checks that three ranks, or one, can load the moments and averages that two ranks saved in parts, and that two
    ranks can load what one rank saved."""
    skip_without_gpus(3)
    text = digits(model='name: "mlp" mlp { hidden: [24] }', optimizer="type: ADAMW lr: 0.003 ema_decay: 0.9")
    config = write_config(tmp_path, text)
    whole = tmp_path / "whole"
    run = train(config, whole, *sets(f"optimizer.shard={before[1]}"), ranks=before[0])
    assert run.status == DONE, run
    step = checkpoints(whole)[1]
    part = with_checkpoint_only(whole, step, tmp_path / "part")
    run = train(config, part, *sets(f"optimizer.shard={after[1]}"), ranks=after[0])
    assert run.status == DONE, run
    np.testing.assert_allclose(list(losses_by_step(part).values()), list(losses_by_step(whole).values()), rtol=1e-4, atol=1e-5)
    expected = weights_of(whole)
    for name, tensor in weights_of(part).items():
        np.testing.assert_allclose(tensor, expected[name], rtol=1e-3, atol=1e-5)


# ---- Runs that have ended -----------------------------------------------------------------------


def test_a_run_that_has_ended_ends_again(tmp_path):
    config = write_config(tmp_path, digits())
    run_dir = tmp_path / "run"
    assert train(config, run_dir).status == DONE
    before = losses_by_step(run_dir)
    weights = weight_bytes(run_dir)
    (run_dir / "weights.safetensors").unlink()
    assert train(config, run_dir).status == DONE
    assert losses_by_step(run_dir) == before
    assert weight_bytes(run_dir) == weights


def test_more_epochs(tmp_path):
    config = write_config(tmp_path, digits())
    run_dir, whole = tmp_path / "run", tmp_path / "whole"
    assert train(config, run_dir).status == DONE
    assert train(config, run_dir, *sets("epochs=3")).status == DONE
    assert train(config, whole, *sets("epochs=3")).status == DONE
    assert losses_by_step(run_dir) == losses_by_step(whole)
    assert weight_bytes(run_dir) == weight_bytes(whole)


def test_fresh_begins_anew_and_keeps_the_old(tmp_path):
    config = write_config(tmp_path, digits())
    run_dir = tmp_path / "run"
    for number in (1, 2):
        assert train(config, run_dir).status == DONE
        run = train(config, run_dir, "--fresh")
        assert run.status == DONE
        assert run.error_lines == [f"lockstep: warning: {run_dir}: the run that was there is now {run_dir}.{number}"]
        assert events(run_dir, "resume") == []
        assert losses_by_step(tmp_path / f"run.{number}") == losses_by_step(run_dir)
        assert checkpoints(tmp_path / f"run.{number}")[-1] == checkpoints(run_dir)[-1]


def test_lists_checkpoints(tmp_path):
    config = write_config(tmp_path, digits(data="validation_fraction: 0.2"))
    run_dir = tmp_path / "run"
    assert train(config, run_dir).status == DONE
    listed = Run(["checkpoints", run_dir])
    assert listed.status == DONE, listed
    newest = events(run_dir, "checkpoint")[-1]
    loss = events(run_dir, "eval")[-1]["val_loss"]
    assert listed.out.splitlines()[0].startswith(f"step 46  {newest['bytes']} bytes of 1 rank  loss {loss:.4f}")
    for command in ("checkpoints", "verify"):
        expect_error(Run([command, tmp_path / "nothing"]), CHECKPOINT, "nothing: no run's folder with checkpoints")


# ---- Damage -------------------------------------------------------------------------------------


STEPS_PER_EPOCH = 29  # for 1,797 samples with 64 in each step
THREE_EPOCHS = digits().replace("every_steps: 1 keep: 100", "every_epochs: 1 keep: 3")


@pytest.fixture(scope="module")
def three_epochs(tmp_path_factory):
    """Returns a run folder with a checkpoint after each of its three epochs."""
    folder = tmp_path_factory.mktemp("three_epochs")
    config = write_config(folder, THREE_EPOCHS)
    run_dir = folder / "run"
    # A run waits for the checkpoint at its end, but may skip an earlier one, so each epoch is trained by a separate
    # start.
    for epochs in (1, 2, 3):
        assert train(config, run_dir, *sets(f"epochs={epochs}")).status == DONE
    assert checkpoints(run_dir) == [STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH, 3 * STEPS_PER_EPOCH]
    kept = [e for e in events(run_dir) if e["event"] != "resume"]
    (run_dir / "log.jsonl").write_text("".join(json.dumps(e) + "\n" for e in kept))
    return run_dir


@pytest.fixture
def trained(three_epochs, tmp_path):
    """Returns (the config, a copy of the run folder that may be damaged)."""
    shutil.copytree(three_epochs, tmp_path / "run")
    return write_config(tmp_path, THREE_EPOCHS), tmp_path / "run"


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


DAMAGE = {
    "bit": ("model.safetensors", flip_a_bit, "its checksum is not the manifest's"),
    "state": ("state-0.safetensors", flip_a_bit, "its checksum is not the manifest's"),
    "cut": ("state-0.safetensors", cut, "bytes where the manifest says"),
    "missing": ("model.safetensors", lambda path: path.unlink(), "cannot be opened: No such file"),
    "manifest": ("manifest.pb", flip_a_bit, "is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.all_tier(
    "other files of the checkpoint are checked against the same manifest",
    unless=lambda damage: damage not in ("state", "cut"),
)
def test_damage_is_named_and_the_one_before_taken(trained, damage):
    config, run_dir = trained
    before = losses_by_step(run_dir)
    steps = checkpoints(run_dir)
    name, act, reason = DAMAGE[damage]
    path = checkpoint_folder(run_dir, steps[-1]) / name
    assert Run(["verify", run_dir]).status == DONE
    act(path)
    verified = Run(["verify", run_dir])
    expect_error(verified, CHECKPOINT, "1 of 4 are damaged")
    assert f"{path}: " in verified.out and reason in verified.out and verified.out.count(": whole") == 3
    run = train(config, run_dir, *sets("epochs=3"))
    assert run.status == DONE, run
    assert len(run.error_lines) == 1 and run.error_lines[0].startswith(f"lockstep: warning: {path}"), run
    assert reason in run.error_lines[0], run
    assert [e["step"] for e in events(run_dir, "resume")] == [steps[-2]]
    assert reason in events(run_dir, "warning")[0]["reason"]
    assert losses_by_step(run_dir) == before
    assert checkpoints(run_dir) == steps
    assert path.parent.with_name(path.parent.name + ".aside.1").is_dir()


def test_all_damaged(trained):
    config, run_dir = trained
    for step in checkpoints(run_dir):
        flip_a_bit(checkpoint_folder(run_dir, step) / "model.safetensors")
    steps = checkpoints(run_dir)
    expect_error(train(config, run_dir, *sets("epochs=3")), CHECKPOINT, "none of its 3 checkpoints is whole", "--fresh")
    assert checkpoints(run_dir) == steps


def test_no_checkpoint_is_of_a_step_after_an_anomaly(tmp_path):
    """Checks that no checkpoint is of step 21, which has an anomaly, or of a later step. On a GPU the host learns of an
    anomaly up to eight steps later, and must not commit the checkpoints that it has begun in between."""
    noisy_digits(tmp_path, 1700, planted=[64 * 20 + 1])
    config = write_config(
        tmp_path,
        """deterministic: true global_batch: 64 epochs: 3 log { every_steps: 9 } optimizer { lr: 0.01 }
        data { train: "train.csv" shuffle: false } model { name: "mlp" mlp { hidden: [512] } }
        checkpoint { every_steps: 1 keep: 100 }""",
    )
    run_dir = tmp_path / "run"
    expect_error(train(config, run_dir), USAGE, "step 21: the loss is")
    assert all(step < 21 for step in checkpoints(run_dir))
    # The resumed run reaches the same anomaly.
    expect_error(train(config, run_dir), USAGE, "step 21: the loss is")


def test_fewer_steps_than_there_were(trained):
    config, run_dir = trained
    expect_error(train(config, run_dir, *sets("epochs=2")), USAGE, "is of step 87, and 58 steps are all")


# ---- Other configs, data and folders ------------------------------------------------------------


def test_another_config_is_refused(trained):
    config, run_dir = trained
    run = train(config, run_dir, *sets("epochs=3", "seed=8", "optimizer.lr=0.1"))
    expect_error(run, USAGE, "optimizer.lr: 0.1 where it was 0.003", "seed: 8 where it was 1", "--fresh")


@pytest.mark.parametrize(
    "field",
    ["log.every_steps=5", "loader.threads=0", "watchdog.collective_timeout_s=9", "checkpoint.keep=1", "graph=false"],
)
@pytest.mark.all_tier(
    "other fields have the same mark in the schema",
    unless=lambda field: field == "log.every_steps=5",
)
def test_what_changes_no_result_may_change(trained, field):
    config, run_dir = trained
    assert train(config, run_dir, *sets("epochs=4", field)).status == DONE


def test_other_data_are_refused(tmp_path):
    lines = DIGITS.read_text().splitlines(keepends=True)
    (tmp_path / "some.csv").write_text("".join(lines[:400]))
    config = write_config(tmp_path, digits().replace(str(DIGITS), str(tmp_path / "some.csv")))
    run_dir = tmp_path / "run"
    assert train(config, run_dir).status == DONE
    # The data may be moved to another path.
    (tmp_path / "some.csv").rename(tmp_path / "moved.csv")
    config = write_config(tmp_path, digits().replace(str(DIGITS), str(tmp_path / "moved.csv")))
    assert train(config, run_dir, *sets("epochs=3")).status == DONE
    (tmp_path / "moved.csv").write_text("".join(lines[:401]))
    run = train(config, run_dir, *sets("epochs=4"))
    expect_error(run, DATA, "401 training samples", "400 training samples")


def test_what_is_no_run_is_left_alone(tmp_path):
    config = write_config(tmp_path, digits())
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.txt").write_text("precious")
    for arguments in ([], ["--fresh"]):
        expect_error(train(config, folder, *arguments), USAGE, f"{folder}: exists already and is no run's")
        assert os.listdir(folder) == ["chapter1.txt"]
    expect_error(train(config, folder / "chapter1.txt"), USAGE, "exists already and is no run's")
    assert sorted(os.listdir(tmp_path)) == ["config.pbtxt", "thesis"]


def test_a_finished_run_without_checkpoints_is_left_alone(trained):
    config, run_dir = trained
    shutil.rmtree(run_dir / "checkpoints")
    weights = weight_bytes(run_dir)
    expect_error(train(config, run_dir), USAGE, "left no checkpoint to go on from", "--fresh")
    assert weight_bytes(run_dir) == weights


def test_a_run_that_ended_before_its_first_checkpoint_begins_again(trained):
    config, run_dir = trained
    expected = losses_by_step(run_dir)
    shutil.rmtree(run_dir / "checkpoints")
    (run_dir / "weights.safetensors").unlink()
    assert train(config, run_dir, *sets("epochs=3")).status == DONE
    assert losses_by_step(run_dir) == expected and events(run_dir, "resume") == []


def test_two_runs_at_once(tmp_path):
    """Checks that a second run is refused while the first one trains, and accepted once the first one was killed."""
    config = write_config(tmp_path, digits(more="").replace("epochs: 2", "epochs: 100000"))
    run_dir = tmp_path / "run"
    with Started(config, run_dir) as first:
        first.wait_for("step")
        expect_error(train(config, run_dir), USAGE, f"process {first.process.pid} on ", "trains in it")
        expect_error(train(config, run_dir, "--fresh"), USAGE, f"process {first.process.pid} on ")
    # max_steps leaves only two steps to make, so the run ends at once.
    newest = max(checkpoints(run_dir), default=0)
    run = train(config, run_dir, *sets(f"max_steps={newest + 2}"))
    assert run.status == DONE, run


def test_machines_that_share_no_disk(tmp_path):
    """Gives each rank a different folder under the run folder's name. The program must report this as an error."""
    skip_without_gpus(2)
    config = write_config(tmp_path, digits())
    folders = [tmp_path / f"machine-{rank}" for rank in (0, 1)]
    for folder in folders:
        folder.mkdir()
    command = command_of(["train", config, "--set", "run_dir=run"])
    run = run_ranks(*(["env", "-C", folder, *command] for folder in folders))
    expect_error(run, USAGE, "rank 1: ", "is not the one that rank 0 has", "a disk that their machines share")
    assert os.listdir(tmp_path / "machine-1") == []


# ---- Checkpoints that are kept ------------------------------------------------------------------


@pytest.mark.parametrize("metric,better", [("accuracy", max), ("loss", min)])
@pytest.mark.all_tier(
    "the loss is compared like the accuracy, with the other sign",
    unless=lambda metric: metric == "accuracy",
)
def test_the_best_is_kept(tmp_path, metric, better):
    """Checks that a checkpoint follows each validation that is the best so far, that the newest and the best are kept,
    and that commands that take the run use the best."""
    text = digits(data="validation_fraction: 0.2", more="").replace("epochs: 2", "epochs: 8").replace("0.003", "0.03")
    when = f'checkpoint {{ every_epochs: 0 keep: 1 keep_best: "{metric}" }}'
    config = write_config(tmp_path, text.replace("checkpoint { every_steps: 1 keep: 100 }", when))
    run_dir = tmp_path / "run"
    assert train(config, run_dir).status == DONE
    evaluated = {e["step"]: e[f"val_{metric}"] for e in events(run_dir, "eval")}
    made = [e["step"] for e in events(run_dir, "checkpoint")]
    best_so_far = []  # of equal values the first is the best
    for step, value in evaluated.items():
        if not best_so_far or better(value, evaluated[best_so_far[-1]]) != evaluated[best_so_far[-1]]:
            best_so_far.append(step)
    assert made == sorted({*best_so_far, max(evaluated)})
    best = best_so_far[-1]
    assert checkpoints(run_dir) == sorted({best, made[-1]})
    listed = Run(["checkpoints", run_dir]).out.splitlines()
    assert [line.split()[1] for line in listed if line.endswith(f"best {metric}")] == [str(best)]
    for name, step in ((run_dir, best), (f"{run_dir}@best", best), (f"{run_dir}@last", made[-1]), (f"{run_dir}@{best}", best)):
        out = Run(["evaluate", name]).out
        assert f"{metric} {evaluated[step]:.4f}" in out, (name, step, out)
        assert (f"step-{step:012}, the best {metric})" in out) == (name in (run_dir, f"{run_dir}@best")), out
    predicted = Run(["predict", run_dir, "--input", DIGITS, "--output", tmp_path / "p.csv"])
    assert f"predictions, weights of {run_dir}/checkpoints/step-{best:012}, the best {metric}" in predicted.out, predicted


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank ends early as two do", unless=lambda ranks: ranks)
def test_it_ends_early(ranks, tmp_path):
    """Tests early stopping with a min_delta of 1. An accuracy cannot rise by more than 1, so only the first evaluation
    counts as an improvement."""
    skip_without_gpus(ranks)
    config = write_config(tmp_path, digits(data="validation_fraction: 0.2").replace("epochs: 2", "epochs: 20"))
    fields = sets("early_stopping.metric=accuracy", "early_stopping.min_delta=1")
    run_dir = tmp_path / "run"

    def ends_after(patience):
        run = train(config, run_dir, *fields, *sets(f"early_stopping.patience={patience}"), ranks=ranks)
        assert run.status == DONE, run
        done = events(run_dir, "done")[-1]
        first = events(run_dir, "eval")[0]["val_accuracy"]
        told = f"accuracy has not become better by more than 1 since epoch 1 ({first:.4f}), in {patience} evaluations"
        assert done["early"] == told and f"early stopping: {told}" in run.out, (done, run)
        return done["epoch"], len(events(run_dir, "step"))

    epochs, steps = ends_after(3)
    assert epochs == 4 and events(run_dir, "done")[-1]["step"] == steps
    assert ends_after(3) == (epochs, steps)  # the run has ended already
    assert ends_after(5)[0] == 6  # the evaluations before the run was resumed count as well
    # The best checkpoint is kept even if its accuracy is better by less than min_delta.
    best = max(events(run_dir, "eval"), key=lambda e: (e["val_accuracy"], e["step"]))
    assert f"step-{best['step']:012}, the best accuracy" in Run(["evaluate", run_dir]).out


def test_it_ends_early_by_what_there_is_not(tmp_path):
    config = write_config(tmp_path, digits(data="validation_fraction: 0.2"))
    run = train(config, tmp_path / "run", *sets("early_stopping.metric=acuracy"))
    expect_error(run, USAGE, 'early_stopping.metric: no metric "acuracy"; did you mean "accuracy"?')


@pytest.mark.parametrize(
    "data,name,parts",
    [
        ("validation_fraction: 0.2", "acuracy", ['no metric "acuracy"; did you mean "accuracy"?', "loss, accuracy, top5, f1"]),
        ("validation_fraction: 0.2", "auc", ['no metric "auc"', "loss, accuracy, top5, f1"]),
        ("", "loss", ["no samples are held back", "data.validation_fraction"]),
    ],
)
@pytest.mark.all_tier("a metric of another task is refused like a mistyped one", unless=lambda name: name != "auc")
def test_the_best_by_what_there_is_not(tmp_path, data, name, parts):
    config = write_config(tmp_path, digits(data=data))
    run = train(config, tmp_path / "run", *sets(f"checkpoint.keep_best={name}"))
    expect_error(run, USAGE, "checkpoint.keep_best", *parts)


def test_every_so_manieth_is_kept(tmp_path):
    config = write_config(tmp_path, digits())
    run_dir = tmp_path / "run"
    fields = ["checkpoint.every_steps=4", "checkpoint.keep=1", "checkpoint.keep_every_steps=8"]
    assert train(config, run_dir, *sets(*fields)).status == DONE
    made = [e["step"] for e in events(run_dir, "checkpoint")]
    assert checkpoints(run_dir) == [step for step in made if step % 8 == 0 or step == made[-1]]


def test_a_slow_disk_makes_checkpoints_late(tmp_path):
    """Limits the writing of checkpoints to 10 MB/s, as if the disk were slow. The run's steps are faster, so
    checkpoints are late, and the run reports this."""
    config = write_config(tmp_path, digits(model='name: "mlp" mlp { hidden: [512] }'))
    run_dir = tmp_path / "run"
    run = train(config, run_dir, *sets("checkpoint.max_mb_per_s=10"))
    assert run.status == DONE, run
    assert events(run_dir, "checkpoint_late") and "is still being written" in run.out
    made = events(run_dir, "checkpoint")
    assert 2 <= len(made) < 28 and made[-1]["step"] == 58
    assert all(e["seconds"] >= e["bytes"] / 10e6 for e in made)


# ---- From another run ---------------------------------------------------------------------------


def test_from_another_runs_checkpoint(tmp_path, trained):
    config, source = trained
    run_dir = tmp_path / "branch"
    step = checkpoints(source)[1]
    run = train(config, run_dir, "--from", f"{source}@{step}", *sets("epochs=3"))
    assert run.status == DONE, run
    (resumed,) = events(run_dir, "resume")
    assert (resumed["step"], resumed["checkpoint"]) == (step, str(checkpoint_folder(source, step)))
    assert resumed["differences"] == []
    expected = {s: loss for s, loss in losses_by_step(source).items() if s > step}
    assert losses_by_step(run_dir) == expected
    # A second start resumes from the run's own checkpoint, not from the other run's.
    assert train(config, run_dir, "--from", f"{source}@{step}", *sets("epochs=3")).status == DONE
    assert [e["step"] for e in events(run_dir, "resume")] == [step, max(expected)]


def test_from_another_config(tmp_path, trained):
    config, source = trained
    run_dir = tmp_path / "branch"
    run = train(config, run_dir, "--from", source, *sets("epochs=4", "optimizer.lr=0.001"))
    assert run.status == DONE, run
    assert events(run_dir, "resume")[0]["differences"] == ["optimizer.lr: 0.001 where it was 0.003"]
    assert "optimizer.lr: 0.001 where it was 0.003" in run.out
    assert events(run_dir, "step")[0]["lr"] == 0.001
    # Another model cannot load the checkpoint, and the failed start leaves nothing that a later start would resume
    # from.
    run = train(config, tmp_path / "other", "--from", source, *sets("epochs=4", "model.mlp.hidden=[25]"))
    expect_error(run, CHECKPOINT, "has shape [24, 64] where the model has [25, 64]")
    run = train(config, tmp_path / "other", *sets("epochs=1"))
    assert run.status == DONE and events(tmp_path / "other", "resume") == []


def test_from_a_run_that_has_ended(tmp_path, trained):
    """Resumes from the last checkpoint of a run that has ended. No step is left to make, and the new run still ends
    properly."""
    config, source = trained
    run_dir = tmp_path / "branch"
    run = train(config, run_dir, "--from", source, *sets("epochs=3"))
    assert run.status == DONE, run
    assert weight_bytes(run_dir) == weight_bytes(source)
    assert checkpoints(run_dir) == checkpoints(source)[-1:]
    run = train(config, tmp_path / "other", "--from", source, *sets("epochs=2"))
    expect_error(run, USAGE, f"{checkpoint_folder(source, 87)}: is of step 87, and 58 steps are all", "without --from")


def test_from_what_cannot_be_gone_on_from(tmp_path, trained):
    config, source = trained
    step = checkpoints(source)[-1]
    run_dir = tmp_path / "branch"
    expect_error(train(config, run_dir, "--from", tmp_path / "none"), CHECKPOINT, "none: no run with checkpoints")
    expect_error(train(config, run_dir, "--from", f"{source}@1234"), CHECKPOINT, "no checkpoint of step 1234")
    model = checkpoint_folder(source, step) / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    expect_error(train(config, run_dir, "--from", f"{source}@{step}"), CHECKPOINT, "model.safetensors: has ")
    lines = DIGITS.read_text().splitlines(keepends=True)
    (tmp_path / "some.csv").write_text("".join(lines[:400]))
    before = f"{source}@{checkpoints(source)[-2]}"
    run = train(config, run_dir, "--from", before, *sets(f"data.train={tmp_path}/some.csv"))
    expect_error(run, DATA, "400 training samples", "1797 training samples", "init_from")
    assert not (run_dir / "log.jsonl").exists()


# ---- Weights without the rest of a checkpoint ---------------------------------------------------


def load(path):
    return safetensors.torch.load_file(path)


def test_weights_of_a_run_that_has_not_ended(tmp_path):
    """Checks that the exported weights are the averages in the newest checkpoint, which are the final weights of the
    run."""
    config = write_config(
        tmp_path, digits(data="validation_fraction: 0.2", optimizer="type: ADAMW lr: 0.003 ema_decay: 0.9")
    )
    run_dir = tmp_path / "run"
    assert train(config, run_dir).status == DONE
    final = weights_of(run_dir)
    evaluated = Run(["evaluate", run_dir]).out
    (run_dir / "weights.safetensors").unlink()
    last = checkpoints(run_dir)[-1]
    for source in (run_dir, f"{run_dir}@{last}"):
        run = Run(["evaluate", source])
        assert run.out == evaluated.replace(")", f", weights of {checkpoint_folder(run_dir, last)})"), run
        assert Run(["export", source, "--output", tmp_path / "weights.safetensors"]).status == DONE
        exported = load(tmp_path / "weights.safetensors")
        assert exported.keys() == final.keys()
        assert all((exported[name] == final[name]).all() for name in final)
    assert Run(["predict", run_dir, "--input", DIGITS, "--output", tmp_path / "p.csv"]).status == DONE
    expect_error(Run(["evaluate", f"{run_dir}@7777"]), CHECKPOINT, "no checkpoint of step 7777")


def test_export_and_average(tmp_path, trained):
    config, run_dir = trained
    first, last = checkpoints(run_dir)[0], checkpoints(run_dir)[-1]
    one, other = (load(checkpoint_folder(run_dir, step) / "model.safetensors") for step in (first, last))
    out = tmp_path / "out.safetensors"
    for dtype in ("float32", "bfloat16", "float16"):
        run = Run(["export", f"{run_dir}@{first}", "--output", out, "--dtype", dtype])
        assert run.status == DONE and run.out == f"{out}: 4 tensors of {checkpoint_folder(run_dir, first)}\n", run
        for name, tensor in load(out).items():
            assert (tensor == one[name].to(tensor.dtype)).all() and str(tensor.dtype) == f"torch.{dtype}"
    run = Run(["average", f"{run_dir}@{first}", f"{run_dir}@{last}", "--output", out])
    assert run.status == DONE, run
    for name, tensor in load(out).items():
        assert (tensor == ((one[name].double() + other[name].double()) / 2).float()).all()
    # A training can start from the averaged weights.
    assert train(config, tmp_path / "again", *sets(f"init_from={out}")).status == DONE
    expect_error(Run(["average", run_dir, tmp_path / "none", "--output", out]), CHECKPOINT, "none: no run")
    expect_error(Run(["export", run_dir, "--output", tmp_path / "no" / "out"]), CHECKPOINT, "No such file")
    expect_error(Run(["export", run_dir, "--output", out, "--dtype", "int8"]), USAGE, "--dtype")
