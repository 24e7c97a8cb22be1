"""Tests `lockstep tune`: its trials train as `train` does with a trial's settings, and it reports its results and
leaves no file behind except the tuned config."""

import json
import math
import os
import signal
import subprocess

import numpy as np
import pytest

from harness import (
    CHECKPOINT,
    DIGITS,
    DONE,
    INTERRUPTED,
    LOCKSTEP,
    PEER,
    STOPPED,
    USAGE,
    Run,
    command_of,
    digits_data,
    events,
    expect_error,
    faulty_data,
    faulty_model,
    mpirun,
    path_of,
    processes_of,
    ranks_of,
    sets,
    skip_without_gpus,
    train,
    trained_losses,
    wait_until,
    wait_until_gone,
    write_config,
)

FAULTY = path_of("FAULTY")
CONFIG = """global_batch: 64 epochs: 4 seed: 3 data { train: "DIGITS" validation_fraction: 0.2 csv { scale: 0.0625 } }
    model { MODEL } optimizer { type: ADAMW lr: 1e-5 } schedule { type: COSINE }
    observe { on_alert: "touch FOLDER/alerted" }"""
MLP = 'name: "mlp" mlp { hidden: [64] }'


def config_text(folder, model=MLP):
    return CONFIG.replace("DIGITS", str(DIGITS)).replace("MODEL", model).replace("FOLDER", str(folder))


def config_in(folder, more="", model=MLP):
    (folder / "runs").mkdir()
    return write_config(folder, f'{config_text(folder, model)} run_dir: "{folder}/runs/mine" {more}')


def tune(config, *words, only="rate", ranks=None, program=LOCKSTEP):
    return Run(["tune", config, *(["--only", only] if only else []), *words], ranks=ranks, program=program)


def lines_of(run):
    return [json.loads(line) for line in run.out.split("\n")[:-1]]


@pytest.mark.all_tier("two ranks find a rate as one does", unless=lambda ranks: ranks == 1)
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_tried_is_what_is_trained(tmp_path, ranks):
    """Checks that the loss of a trial is the loss of a training with the trial's settings, and that the suggestion is
    the best trial."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    run = tune(config, "--json", ranks=ranks)
    assert run.status == DONE, run
    curve, *trials, found, written = lines_of(run)
    # At last the user's rate and the best one are trained with another seed.
    assert [(trial["lr"], trial["seed"]) for trial in trials[-2:]] == [(1e-5, 4), (found["suggestion"]["optimizer.lr"], 4)]
    trials = [trial for trial in trials if "seed" not in trial]
    assert list((tmp_path / "runs").iterdir()) == [] and not (tmp_path / "alerted").exists()
    # In a range test of the digits the loss starts at about ln 10, because all ten classes are equally likely at first;
    # then it falls, and at last it rises again.
    assert abs(curve["range_test"][0][1] - math.log(10)) < 0.3
    assert 1e-7 < curve["falls_from"] < curve["lowest_at"] <= curve["grows_from"] <= 10
    assert trials[0]["lr"] == 1e-5 and found["whole_run"]
    best = min(trials, key=lambda trial: trial.get("val_loss", math.inf))
    assert found["suggestion"] == {"optimizer.lr": best["lr"], "schedule.warmup_steps": best["warmup_steps"]}
    # The last trial uses the best rate without warm-up.
    assert [trial["warmup_steps"] for trial in trials] == [0, *[4] * (len(trials) - 2), 0]
    # The digits have a clear best rate: the loss at 1e-5 is more than twice that at the best rate.
    assert found["val_loss"] < 0.5 * trials[0]["val_loss"]
    # The user's config, changed by tune, is all that `train` needs to repeat the result.
    assert written == {"config": str(tmp_path / "config.tuned.pbtxt")}
    trained = train(written["config"], tmp_path / "runs/mine", ranks=ranks)
    assert trained.status == DONE, trained
    assert events(tmp_path / "runs/mine", "eval")[-1]["val_loss"] == found["val_loss"]


# Maps a name to (what the config adds, the figure by which trials are compared, whether more of it is better).
CHOOSING = {
    "early_stopping": ('early_stopping { metric: "accuracy" patience: 9 }', "val_accuracy", True),
    "keep_best": ('checkpoint { keep_best: "log_loss" } early_stopping { metric: "accuracy" patience: 9 }', "val_log_loss", False),
}


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.all_tier("another search by the metric of the other field takes 5 s", unless=lambda name: name == "keep_best")
def test_trials_are_compared_by_the_metric_that_chooses_the_weights(tmp_path, name):
    """Checks that each trial is judged by the best value of the metric, which a training with its settings repeats, and
    that the suggestion is the best trial."""
    more, figure, more_is_better = CHOOSING[name]
    # At the end, the constant high rates among those that are tried have lost what they had.
    config = config_in(tmp_path, more)
    run = tune(config, "--json", *sets("schedule.type=CONSTANT", "epochs=3"))
    assert run.status == DONE, run
    lines = [line for line in lines_of(run) if "lr" in line and "seed" not in line]
    assert all("val_loss" not in line for line in lines)
    best = (max if more_is_better else min)((line for line in lines if figure in line), key=lambda line: line[figure])
    found = next(line for line in lines_of(run) if "suggestion" in line)
    assert found["suggestion"]["optimizer.lr"] == best["lr"] and found[figure] == best[figure]
    settings = sets("schedule.type=CONSTANT", "epochs=3", f"optimizer.lr={best['lr']}", f"schedule.warmup_steps={best['warmup_steps']}")
    assert train(config, tmp_path / "runs/mine", *settings).status == DONE
    values = [line[figure] for line in events(tmp_path / "runs/mine", "eval")]
    assert best[figure] == (max if more_is_better else min)(values)


def test_it_tells_what_it_does(tmp_path):
    config = config_in(tmp_path)
    run = tune(config, "--set", "optimizer.lr=1e20", "--set", "optimizer.type=SGD")
    assert run.status == DONE, run
    lines = run.out.splitlines()
    assert lines[0].startswith("range test: 240 steps, ") and lines[1].split() == ["lr", "loss"]
    (header,) = (i for i, line in enumerate(lines) if line.split() == ["lr", "warm-up", "steps", "val_loss", "seconds"])
    # The training with the user's own rate diverges. The row of this rate says so, and the search goes on.
    assert lines[header + 1].split()[0] == "1e+20" and "yours: step " in lines[header + 1], run
    assert "suggestion: optimizer.lr " in run.out
    # The last line is a command that trains with the suggestion.
    command = [word.strip("'") for word in lines[-1].split()]
    assert command[1:3] == ["train", str(tmp_path / "config.tuned.pbtxt")] and "optimizer.lr=1e20" not in command
    text = (tmp_path / "config.tuned.pbtxt").read_text()
    assert "# lr was 1e+20; now " in text and "optimizer { type: ADAMW lr: " in text, text
    assert Run(command[1:]).status == DONE


@pytest.mark.all_tier("a search that finds nothing takes 5 s")
def test_a_config_that_cannot_be_bettered_gets_no_other(tmp_path):
    """Checks that a config is written only if a better rate was found. The time limit of one second ends the search
    after the trial of the user's own rate, or after few further trials."""
    config = config_in(tmp_path)
    run = tune(config, "--json", "--time", "1", "--set", "optimizer.lr=0.02", "--set", "schedule.warmup_steps=4")
    assert run.status == DONE, run
    (suggestion,) = [line["suggestion"] for line in lines_of(run) if "suggestion" in line]
    is_users = suggestion["optimizer.lr"] == 0.02
    assert ("config" in lines_of(run)[-1]) == (not is_users) == (tmp_path / "config.tuned.pbtxt").exists()


@pytest.mark.all_tier("two searches that are much shorter than the run take 10 s each")
@pytest.mark.parametrize("lr, stays", [(0.003, True), (1e-7, False)])
def test_short_trainings_suggest_what_a_longer_one_can_take(tmp_path, lr, stays):
    """Checks that after trainings much shorter than the run, a user's rate below the best one stays unless it is lower
    than any rate that can be expected to be best for the run."""
    config = config_in(tmp_path)
    run = tune(config, "--json", "--time", "10", *sets("epochs=100000", f"optimizer.lr={lr}"))
    assert run.status == DONE, run
    _, *tried, found = [line for line in lines_of(run) if "config" not in line]
    tried = [trial for trial in tried if "val_loss" in trial and "seed" not in trial and (trial["warmup_steps"] or trial["lr"] == lr)]
    yours, best = tried[0], min(tried, key=lambda trial: trial["val_loss"])
    times = 2_300_000 / yours["steps"]
    least = best["lr"] * max(1 / times, 1 / (4 * math.sqrt(times)))
    assert yours["lr"] == lr and best["lr"] > 0.003 and not found["whole_run"]
    if stays:
        assert least < lr and found["suggestion"]["optimizer.lr"] == lr and found["better_in_short"] == best["lr"]
    else:
        possible = [trial["lr"] for trial in tried if trial["lr"] >= least and trial["val_loss"] < yours["val_loss"]]
        assert lr < least and found["suggestion"]["optimizer.lr"] == min(possible) < best["lr"]


@pytest.mark.all_tier("a search with too little time takes 5 s")
def test_short_trainings_are_said(tmp_path):
    run = tune(config_in(tmp_path), "--time", "4", "--set", "epochs=100000")
    assert run.status == DONE, run
    assert "of the run's 2300000 steps" in run.out and "--time 16" in run.out


@pytest.mark.all_tier("SIGTERM ends a search as Ctrl-C does", unless=lambda sent: sent == signal.SIGINT)
@pytest.mark.parametrize("sent, status", [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, STOPPED)])
@pytest.mark.parametrize("only", ["rate", "batch"])
def test_an_interrupt_keeps_what_it_has(tmp_path, only, sent, status):
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--only", only, "--time", "600", "--set", "epochs=500"])
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1) as process:
        seen = ""
        while " yours\n" not in seen:
            seen += process.stdout.readline()
        wait_until(lambda: processes_of(tmp_path / "runs"))
        process.send_signal(sent)
        rest, said = process.communicate()
    assert process.returncode == status and said == "", (rest, said)
    assert ("no other rate than yours was tried: optimizer.lr 1e-05" in rest) == (only == "rate")
    assert ("accumulation 1, activation checkpointing off" in rest) == (only == "batch")
    assert list((tmp_path / "runs").iterdir()) == []
    wait_until_gone(tmp_path / "runs")


@pytest.mark.all_tier("a search that is killed takes 5 s")
def test_nothing_stays_of_one_that_is_killed(tmp_path):
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--only", "rate", "--time", "600", "--set", "epochs=100000"])
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_until(lambda: processes_of(tmp_path / "runs"))
        process.kill()
    wait_until_gone(tmp_path / "runs")
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert tune(config).status == DONE
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_trial_that_fails(tmp_path):
    """Kills a rank during a trial. The lost trial says nothing about the learning rate, so tune must fail."""
    config = config_in(tmp_path)
    words = command_of(["tune", config, "--only", "rate", "--time", "600", "--set", "epochs=100000"], ranks=2)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(ranks_of(tmp_path / "runs")) == 2)
        os.kill(ranks_of(tmp_path / "runs")[1], signal.SIGKILL)
        printed, said = process.communicate()
    assert process.returncode == PEER, (printed, said)
    assert said.count("\n") == 1 and "a trial failed: " in said, said
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_fastest_step(tmp_path):
    """Checks that tune replaces micro-batches of two samples, which are much slower than larger ones. The losses of the
    training stay the same."""
    config = config_in(tmp_path, "accumulation: 32")
    run = tune(config, "--json", only="batch")
    assert run.status == DONE, run
    users, *ways, found, written = lines_of(run)
    assert list((tmp_path / "runs").iterdir()) == []
    assert (users["accumulation"], users["micro_batch"], users["activation_checkpointing"]) == (32, 2, False)
    assert ways[0]["accumulation"] == 1 and ways[0]["micro_batch"] == 64
    best = max(ways, key=lambda way: way["samples_per_s"])
    assert best["samples_per_s"] > users["samples_per_s"]
    suggested = {"accumulation": best["accumulation"], "model.activation_checkpointing": False}
    assert found == {"suggestion": suggested, "samples_per_s": best["samples_per_s"]}
    text = (tmp_path / "config.tuned.pbtxt").read_text()
    assert f"accumulation: {best['accumulation']}" in text and "# accumulation was 32, which gives " in text, text
    steps = sets("max_steps=8", "log.every_steps=1")
    losses = [trained_losses(path, tmp_path / name, *steps) for name, path in (("a", config), ("b", written["config"]))]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.all_tier("it makes one after the other the searches that other tests make one by one")
@pytest.mark.parametrize("ranks", [1, 2])
def test_all_that_can_be_found(tmp_path, ranks):
    """Checks that one written config has both the step's settings and the learning rate, and that it trains."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "accumulation: 16")
    run = tune(config, only=None, ranks=ranks)
    assert run.status == DONE, run
    suggestions = [line for line in run.out.splitlines() if line.startswith("suggestion: ")]
    assert "accumulation 1, " in suggestions[0] or "accumulation 2, " in suggestions[0], run
    assert suggestions[-1].startswith("suggestion: optimizer.lr "), run
    tuned = (tmp_path / "config.tuned.pbtxt").read_text()
    assert tuned.count("(lockstep tune)") >= 2 and "accumulation: 16" not in tuned and "lr: 1e-5" not in tuned, tuned
    assert train(tmp_path / "config.tuned.pbtxt", tmp_path / "runs/mine", ranks=ranks).status == DONE


def fields_of(config):
    """Returns {name of a field: comment that `lockstep tune` has written above it} of a config."""
    lines = config.read_text().splitlines()
    return {line.split()[1]: line for line in lines if line.lstrip().startswith("# ")}


def test_the_loader(tmp_path):
    """Tunes a loader whose threads sleep for two milliseconds for each sample, so each further thread makes it faster.
    """
    text = f"""global_batch: 64 epochs: 1 {faulty_data(sleep_us=2000)} model {{ name: "mlp" }}
        loader {{ threads: 1 }} run_dir: "{tmp_path}/runs/mine" """
    run = tune(write_config(tmp_path, text), "--json", "--time", "12", only="loader", program=FAULTY)
    assert run.status == DONE, run
    users, *trials, found, written = lines_of(run)
    assert users["setting"] == {} and users["samples_per_s"] < 500, run
    assert all(trial["setting"] == {} or "loader.threads" in trial["setting"] for trial in trials), run
    # How many threads are tried in this time depends on the machine.
    best = max(trials, key=lambda trial: trial["samples_per_s"])
    assert found["samples_per_s"] == best["samples_per_s"] > users["samples_per_s"], run
    threads = int(found["suggestion"]["loader.threads"])
    assert str(threads) == best["setting"]["loader.threads"] and threads > 1, run
    config = tmp_path / "config.tuned.pbtxt"
    assert f"threads: {threads}" in config.read_text()
    assert "threads was 1, which gives " in fields_of(config)["threads"]
    assert train(written["config"], tmp_path / "runs/mine", program=FAULTY).status == DONE
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_a_loader_that_training_does_not_wait_for(tmp_path):
    """Checks that tune only measures the user's setting of the loader, and tries no other one, if the steps need less
    than half of the samples/s that the loader gives."""
    config = config_in(tmp_path, "accumulation: 64")
    run = tune(config, "--json", "--time", "20", "--set", "model.mlp.hidden=[512, 512]", only="batch,loader")
    assert run.status == DONE, run
    assert len([line for line in lines_of(run) if "setting" in line]) == 1, run
    assert any("training does not wait for it" in line.get("reason", "") for line in lines_of(run)), run


def test_parts_without_time_are_not_begun(tmp_path):
    """Checks that tune says that it tried nothing but the user's way if there was time for one trial, names the parts for
    which no time was left, and removes the folders that it made."""
    config = write_config(tmp_path, f'{config_text(tmp_path)} run_dir: "{tmp_path}/new/deep/mine"')
    run = tune(config, "--time", "1", only="batch,loader,rate")
    assert run.status == DONE, run
    assert "nothing was tried but yours: accumulation 1, activation checkpointing off" in run.out, run
    for part in ("threads, slots, decoding and cache", "learning rate and warm-up"):
        assert f"nothing is suggested for {part}: the time was over before all was tried: --time 4" in run.out, run
    assert not (tmp_path / "new").exists()


@pytest.mark.all_tier("another kill of a rank is tried for the learning rate", unless=lambda sent: sent == signal.SIGTERM)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGUSR2])
def test_a_trial_whose_rank_gets_a_signal(tmp_path, sent):
    config = config_in(tmp_path, "accumulation: 32")
    words = command_of(["tune", config, "--only", "batch", "--time", "600", "--set", "model.mlp.hidden=[2048, 2048]"], ranks=2)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(ranks_of(tmp_path / "runs")) == 2)
        os.kill(ranks_of(tmp_path / "runs")[1], sent)
        printed, said = process.communicate()
    assert process.returncode in (PEER, 128 + sent) and said.count("\n") == 1, (printed, said)
    assert "a trial failed: " in said and any(part in said for part in (f"{128 + sent}", "signal", "rank 1 died")), said
    assert "a trial failed: env" not in said and "status 0" not in said, said
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.all_tier("a search of bucket sizes takes 25 s")
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_exchange_between_ranks(tmp_path, ranks):
    """Checks which bucket sizes tune tries, and that it suggests one only if the steps are more than 2 % faster."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "ddp { bucket_bytes: 4096 first_bucket_bytes: 4096 }")
    run = tune(config, "--json", "--set", "model.mlp.hidden=[512, 512, 512]", only="exchange", ranks=ranks)
    assert run.status == DONE, run
    users, *trials = (line for line in lines_of(run) if "setting" in line)
    tried = {trial["setting"].get("ddp.bucket_bytes") for trial in trials}
    # Tune tries bucket sizes in ascending order, and ends with the first size that holds all gradients. The model has
    # 2.3 MB of gradients. They do not fit into 1 MiB but fit into 5 MiB, so the next size, 25 MiB, is not tried.
    assert {str(1 << 20), str(5 << 20)} <= tried and str(25 << 20) not in tried, run
    (found,) = (line for line in lines_of(run) if "suggestion" in line)
    assert found["suggestion"] == {} or found["samples_per_s"] > 1.02 * users["samples_per_s"], run
    assert list((tmp_path / "runs").iterdir()) == []


def test_ranks_that_are_unlike(tmp_path):
    """Tunes with a second rank that is slower and has memory for fewer samples. All ranks find the same settings, and
    can train with them."""
    model = faulty_model(fault=8, fits=12, rank=1, sleep_us=3000)
    text = f'global_batch: 96 epochs: 2 {digits_data()} model {{ {model} }} run_dir: "{tmp_path}/runs/mine"'
    run = tune(write_config(tmp_path, text), "--json", "--time", "12", only="batch,exchange", ranks=2, program=FAULTY)
    assert run.status == DONE, run
    found = next(line for line in lines_of(run) if "accumulation" in (line.get("suggestion") or {}))
    assert found["suggestion"]["accumulation"] >= 4, run
    trained = train(tmp_path / "config.tuned.pbtxt", tmp_path / "runs/mine", ranks=2, program=FAULTY)
    assert trained.status == DONE and not events(tmp_path / "runs/mine", "out_of_memory"), trained


def test_a_trial_that_hangs(tmp_path):
    """Stops the second rank (SIGSTOP) in a step of a trial. The watchdog ends the trial."""
    model = faulty_model(fault=5, at=3, rank=1)
    text = f"""global_batch: 64 epochs: 2 {digits_data()} model {{ {model} }} run_dir: "{tmp_path}/runs/mine"
        watchdog {{ heartbeat_timeout_s: 2 }}"""
    run = tune(write_config(tmp_path, text), only="batch", ranks=2, program=FAULTY)
    expect_error(run, PEER, "a trial failed: ")
    assert "rank 1" in run.err, run
    assert not (tmp_path / "runs").exists()
    wait_until_gone(tmp_path / "runs")


def test_other_global_batches(tmp_path):
    """Checks that a larger global batch is suggested if steps of four samples take about as long as steps of more
    samples, and that the learning rate follows the optimizer's rule, here the square-root rule. Each forward of the
    model sleeps for 10 ms, so that this is so on a busy machine, too."""
    config = config_in(tmp_path, "accumulation: 1", model=faulty_model(base_us=10000))
    words = ["--global-batch", "auto", "--json", "--set", "global_batch=4", "--set", "device=CPU"]
    run = tune(config, *words, "--time", "20", only="largest", program=FAULTY)
    assert run.status == DONE, run
    assert any("nothing but the machine's own memory" in line.get("reason", "") for line in lines_of(run)), run
    batches = [line for line in lines_of(run) if "square_root_lr" in line]
    assert [line["global_batch"] for line in batches] == [4 * 2**i for i in range(len(batches))] and len(batches) > 2
    for i, line in enumerate(batches):
        assert line["linear_lr"] == pytest.approx(1e-5 * 2**i)
        assert line["square_root_lr"] == pytest.approx(1e-5 * 2 ** (i / 2))
    (found,) = (line for line in lines_of(run) if "global_batch" in (line.get("suggestion") or {}))
    best = max(line["samples_per_s"] for line in batches)
    assert found["samples_per_s"] >= 0.95 * best and best > batches[0]["samples_per_s"], run
    global_batch = found["suggestion"]["global_batch"]
    assert found["suggestion"]["optimizer.lr"] == pytest.approx(1e-5 * math.sqrt(global_batch / 4))
    text = (tmp_path / "config.tuned.pbtxt").read_text()
    assert f"global_batch: {global_batch}" in text and "the square-root rule gives this" in text, text
    assert train(tmp_path / "config.tuned.pbtxt", tmp_path / "runs/mine", program=FAULTY).status == DONE


@pytest.mark.all_tier("the precision is tried as other settings of the step are")
def test_the_precision(tmp_path):
    """Tunes the precision, which happens only if --only names it, because the precision changes the results."""
    run = tune(config_in(tmp_path), "--json", "--set", "device=CPU", only="precision")
    assert run.status == DONE, run
    tried = [line["setting"] for line in lines_of(run) if "setting" in line]
    assert tried[:2] == [{}, {"precision": "BF16"}], run


def test_few_samples(tmp_path):
    """Checks that, with 1437 samples, a batch of 1024 can be timed. A batch of 1500 cannot be timed, but its learning
    rate can be searched."""
    config = config_in(tmp_path)
    run = tune(config, "--time", "2", "--set", "global_batch=1024", only="batch")
    assert run.status == DONE, run
    assert run.out.splitlines()[1].split()[:2] == ["1024", "1"], run
    run = tune(config, "--time", "10", "--set", "global_batch=1500", only="batch,rate")
    assert run.status == DONE, run
    nothing = "nothing is suggested for micro-batches and activation checkpointing: a trial failed: "
    assert nothing + "steps of 1500 samples cannot be timed with 14" in run.out
    assert ": optimizer.lr " in run.out, run
    expect_error(tune(config, "--set", "global_batch=1500", only="batch"), USAGE, "cannot be timed with 14")


@pytest.mark.all_tier("it takes a whole search to fail in the next one")
def test_what_is_found_before_a_failure_is_kept(tmp_path):
    text = """data { format: SYNTHETIC input_shape: 8 classes: 3 } model { name: "mlp" } global_batch: 64 accumulation: 32
        optimizer { type: SGD }"""
    config = write_config(tmp_path, f'{text} run_dir: "{tmp_path}/runs/mine"')
    run = tune(config, only=None)
    expect_error(run, USAGE, "the loss falls at no learning rate")
    assert run.out.splitlines()[-1].endswith(f"train {tmp_path}/config.tuned.pbtxt"), run
    assert "# accumulation was 32, which gives " in (tmp_path / "config.tuned.pbtxt").read_text()


@pytest.mark.all_tier("a target that is a pipe differs only in the last write of two searches")
def test_a_target_that_is_written_once(tmp_path):
    """Makes a link to /dev/null at the path where tune writes its config. Tune must not replace this link. Tune
    must write the config only once, after both searches: the link could also lead to a FIFO, whose reader would get the
    config of each write."""
    config = config_in(tmp_path, "accumulation: 32")
    (tmp_path / "config.tuned.pbtxt").symlink_to("/dev/null")
    run = tune(config, only="batch,rate")
    assert run.status == DONE and run.out.count("suggestion: ") == 2, run
    assert (tmp_path / "config.tuned.pbtxt").is_symlink()


def test_steps_that_do_not_fit(tmp_path):
    model = faulty_model(fault=8, fits=12)
    text = f'global_batch: 48 epochs: 2 {digits_data()} model {{ {model} }} run_dir: "{tmp_path}/runs/mine"'
    run = tune(write_config(tmp_path, text), only="batch", program=FAULTY)
    assert run.status == DONE, run
    lines = run.out.splitlines()
    header = lines[0].split()
    assert header[:2] == ["micro-batch", "accumulation"], run
    assert lines[1].split()[:3] == ["12", "4", "no"] and "yours: accumulation 1 does not fit in memory" in lines[1], run
    # Activation checkpointing does not let larger micro-batches fit, because the planted limit is on the number of
    # samples.
    assert [line.split()[1:3] for line in lines[1:3]] == [["4", "no"], ["4", "yes"]], run
    assert "accumulation 2 does not fit in memory" in lines[2], run
    assert any(line.startswith("suggestion: accumulation ") for line in lines), run
    none = faulty_model(fault=8, fits=0)
    words = ["--set", "accumulation=48"]
    (tmp_path / "none").mkdir()
    text = f'global_batch: 48 epochs: 2 {digits_data()} model {{ {none} }} run_dir: "{tmp_path}/runs/mine"'
    run = tune(write_config(tmp_path / "none", text), *words, only="batch", program=FAULTY)
    expect_error(run, USAGE, "no step fits in memory")
    assert not (tmp_path / "none" / "config.tuned.pbtxt").exists()


def test_steps_that_a_library_cannot_make(tmp_path):
    """Checks that a setting that fails on the device is discarded, and that the search goes on with the next one."""
    text = f'global_batch: 4 epochs: 2 {digits_data()} model {{ {faulty_model(fault=1)} }} run_dir: "{tmp_path}/runs/mine"'
    run = tune(write_config(tmp_path, text), "--json", only="batch", program=FAULTY)
    assert run.status == USAGE and "a trial failed" not in run.err, run
    tried = [line for line in lines_of(run) if "failure" in line]
    assert len(tried) > 1, run
    assert not (tmp_path / "runs").exists()


def test_labels_that_say_nothing(tmp_path):
    text = """data { format: SYNTHETIC input_shape: 8 classes: 3 } model { name: "mlp" } global_batch: 64
        optimizer { type: SGD }"""
    config = write_config(tmp_path, f'{text} run_dir: "{tmp_path}/runs/mine"')
    expect_error(tune(config), USAGE, "the loss falls at no learning rate between 1e-07 and 10")
    assert not (tmp_path / "runs").exists()


def test_wrong_inputs(tmp_path):
    config = config_in(tmp_path)
    expect_error(tune(config, "--time", "0"), USAGE, "--time")
    expect_error(tune(config, only="raet"), USAGE, "--only: raet is none of batch, precision")
    expect_error(tune(config, only="batch,"), USAGE, "--only:  is none of")
    expect_error(tune(config, "--global-batch", "2"), USAGE, "--global-batch")
    expect_error(tune(config, "--reserve", "1"), USAGE, "--reserve")
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
