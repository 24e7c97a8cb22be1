"""Compares the output of `lockstep runs`, `compare` and `watch RUN` with what pandas reads in the runs' logs."""

import json
import os
import pathlib
import re
import shutil
import signal

import pandas as pd
import pytest

from harness import (
    DONE,
    LOCKSTEP,
    STOPPED,
    USAGE,
    Run,
    Started,
    digits_config,
    digits_data,
    events,
    expect_error,
    log_text,
    path_of,
    sets,
    train,
    write_config,
)
from terminal import Terminal

OLDER_RUN = pathlib.Path(path_of("OLDER_RUN")).parent
LR = "optimizer.lr=0.01"


def frame_of(run_dir):
    return pd.read_json(run_dir / "log.jsonl", lines=True)


def made_last(frame):
    """Returns the last line of each step. A run that resumes writes the steps after its last checkpoint a second time.
    """
    return frame.drop_duplicates("step", keep="last").sort_values("step")


def told(*words):
    run = Run(words)
    assert (run.status, run.err) == (DONE, ""), run
    return run.out


def runs_in(folder):
    """Returns {name of the run folder: object} for the objects that `lockstep runs --json` prints."""
    lines = [json.loads(line) for line in told("runs", folder, "--json").split("\n")[:-1]]
    return {pathlib.Path(line["run"]).name: line for line in lines}


def rows_of(view):
    """Returns {first word of a row: rest of the row} of the view. Rows with the same first word are joined with "; ".
    """
    rows = {}
    for line in view.splitlines():
        name, text = re.fullmatch(r"(\S*) +(\S.*)", line).groups()
        rows[name] = f"{rows[name]}; {text}" if name in rows else text
    return rows


def view_of(run_dir):
    """Returns {first word of a row: rest of the row} of what `lockstep watch RUN --once` prints."""
    return rows_of(told("watch", run_dir, "--once"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with a run in each state except 'training'."""
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder, digits_config(data=digits_data("validation_fraction: 0.2"), epochs=4))
    endless = sets("epochs=100000")
    for name, words in (("done", []), ("other", [*sets(LR, "epochs=3")])):
        run = train(config, folder / name, *words)
        assert run.status == DONE, run
    with Started(config, folder / "stopped", words=endless) as job:
        job.wait_for("eval")
        assert job.stop()[0] == STOPPED
    with Started(config, folder / "killed", words=endless) as job:
        job.wait_for("eval")
        job.process.kill()
        job.end()
    run = train(config, folder / "failed", *sets("optimizer.type=SGD", "optimizer.lr=1e30"))
    expect_error(run, USAGE, "the loss is")
    (folder / "failed.error").write_text(run.error_lines[0])
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return runs_in(folder)


STATES = {"done": "done", "other": "done", "stopped": "stopped", "killed": "killed", "failed": "failed"}


def test_runs_of_a_folder(folder):
    with Started(folder / "config.pbtxt", folder / "new", words=sets("epochs=100000")) as job:
        job.wait_for("eval")
        found = runs_in(folder)
        table = told("runs", folder)
        assert view_of(folder / "new")["state"] == "training"
        job.stop()
    shutil.rmtree(folder / "new")
    assert {name: line["state"] for name, line in found.items()} == STATES | {"new": "training"}
    # `runs` lists the newest run first.
    assert [pathlib.Path(row.split()[0]).name for row in table.splitlines()[1:]] == [*found]
    assert next(iter(found)) == "new"
    for name, line in found.items():
        row = next(row for row in table.splitlines() if f"/{name} " in row)
        assert re.search(rf" {line['state']} +{'' if name == 'new' else line['step']}", row), table


@pytest.mark.parametrize("name", STATES)
@pytest.mark.all_tier(
    "runs that are done and killed go through the same figures as the other states",
    unless=lambda name: name in ("done", "killed"),
)
def test_figures_of_a_run(name, folder, found):
    """Compares the figures of `runs` and `watch` with those that pandas computes from the log."""
    line = found[name]
    frame = frame_of(folder / name)
    steps = frame[frame.event == "step"]
    evaluations = frame[frame.event == "eval"]
    first, last = frame.iloc[0], frame.iloc[-1]
    assert line["step"] == (last.step if name in ("done", "other", "stopped") else steps.step.max())
    assert line["steps"] == first.steps
    assert (line["start_time"], line["last_time"]) == (pytest.approx(first.time), pytest.approx(last.time))
    if name in ("done", "other"):
        assert line["samples_per_s"] == last.samples_per_s
    else:
        assert line["samples_per_s"] == steps.samples_per_s.iloc[-1]
    if evaluations.empty:
        assert (name, line["best"]) == ("failed", None)
    else:
        best = evaluations.loc[evaluations.val_loss.idxmin()]
        assert (line["best_metric"], line["best_step"]) == ("val_loss", best.step)
        assert line["best"] == pytest.approx(best.val_loss, rel=1e-12)
    view = view_of(folder / name)
    assert view["step"].startswith(f"{line['step']} of {line['steps']} ")
    assert view["speed"] == f"{line['samples_per_s']:.0f} samples/s"
    if not evaluations.empty:
        assert view["validation"].startswith(f"step {int(evaluations.step.iloc[-1])}:  val_loss ")
        assert f"val_accuracy {evaluations.val_accuracy.iloc[-1]:.4g}" in view["validation"]


@pytest.mark.parametrize("name", STATES)
def test_times_in_a_log(name, folder):
    """Checks that each line of a log has the time when it was written, and that these times never go back."""
    frame = frame_of(folder / name)
    assert frame.time.notna().all() and frame.time.is_monotonic_increasing
    assert frame.time.iloc[0] > 1.7e9 and frame.time.iloc[-1] - frame.time.iloc[0] < 600


def test_a_failed_run_says_why(folder, found):
    """Checks that the last line of a failed run's log has the command's exit status and error."""
    last = events(folder / "failed")[-1]
    error = (folder / "failed.error").read_text().removeprefix("lockstep: error: ")
    assert (last["event"], last["status"], last["reason"]) == ("failed", USAGE, error)
    assert found["failed"]["why"] == error
    # The row `state` shows the beginning of the error.
    assert view_of(folder / "failed")["state"].startswith("failed: " + error[:80])


def test_why_a_run_was_stopped(folder):
    why = events(folder / "stopped", "stopped")[-1]["why"]
    assert why and view_of(folder / "stopped")["state"] == f"stopped: {why}"


def test_compare(folder):
    """Checks that `compare` shows the metrics by step, and the fields of the config that differ."""
    names = ["done", "other", "failed"]
    result = json.loads(told("compare", *(folder / name for name in names), "--json"))
    assert [line["state"] for line in result["runs"]] == ["done", "done", "failed"]
    assert result["config"] == {
        "epochs": ["4", "3", "4"],
        "optimizer.lr": ["0.003", "0.01", "1e+30"],
        "optimizer.type": ["ADAMW", "ADAMW", "SGD"],
    }
    result = json.loads(told("compare", folder / "done", folder / "other", "--json"))
    frames = [frame_of(folder / name) for name in ("done", "other")]
    losses = result["metrics"].pop("loss")
    ends = [0, *losses["steps"]]
    assert ends == [0, 13, 27, 41, 55, 69]
    steps = [frame[frame.event == "step"].set_index("step").loss for frame in frames]
    for before, last, means in zip(ends, ends[1:], losses["at_step"]):
        assert means == [pytest.approx(one.loc[before + 1 : last].mean(), rel=1e-12) for one in steps]
    assert losses["last_step"] == [92, 69]
    assert [*result["metrics"]][:5] == ["train_loss", "val_loss", "val_accuracy", "val_top5", "val_f1"]
    assert "val_log_loss" in result["metrics"]
    for metric, told_of in result["metrics"].items():
        series = [frame.set_index("step")[metric].dropna() for frame in frames]
        common = [*sorted({*series[0].index} & {*series[1].index})]
        assert told_of["steps"] == common and len(common) == 3
        assert told_of["at_step"] == [[pytest.approx(one[step], rel=1e-12) for one in series] for step in common]
        assert told_of["last"] == [pytest.approx(one.iloc[-1], rel=1e-12) for one in series]
        best = [one.min() if metric.endswith("loss") else one.max() for one in series]
        assert told_of["best"] == [pytest.approx(value, rel=1e-12) for value in best]
        assert told_of["best_step"] == [
            one.idxmin() if metric.endswith("loss") else one.idxmax() for one in series
        ]


def test_compare_as_a_table(folder):
    out = told("compare", folder / "done", folder / "other")
    assert re.search(r"^  optimizer.lr +0.003 +0.01$", out, re.M), out
    last = [frame_of(folder / name).val_loss.dropna().iloc[-1] for name in ("done", "other")]
    assert re.search(rf"^val_loss\n(  .*\n)*  last +{last[0]:.4g} at 92 +{last[1]:.4g} at 69\n", out, re.M), out
    assert "val_f1" in out and "val_log_loss" not in out


@pytest.mark.parametrize("name", ["stopped", "killed"])
@pytest.mark.all_tier(
    "steps that are made twice count the same after a kill as after a stop",
    unless=lambda name: name == "stopped",
)
def test_a_run_that_goes_on(name, folder, tmp_path):
    """Checks that, if a step is in the log twice, the figures come from the later line."""
    run_dir = tmp_path / name
    shutil.copytree(folder / name, run_dir)
    # A run that was killed in its first minutes has no checkpoint, so it starts from the beginning.
    begun = events(run_dir)[-1].get("step", 0) if name == "stopped" else 0
    run = train(folder / "config.pbtxt", run_dir, *sets("epochs=100000", f"max_steps={begun + 50}"))
    assert run.status == DONE, run
    frame = frame_of(run_dir)
    assert (frame.event == "start").sum() == 2 and frame.time.is_monotonic_increasing
    line = runs_in(run_dir)[name]
    assert (line["state"], line["step"], line["why"]) == ("done", begun + 50, "")
    evaluations = made_last(frame[(frame.event == "eval") & (frame.step <= begun + 50)])
    assert line["best"] == pytest.approx(evaluations.val_loss.min(), rel=1e-12)
    compared = json.loads(told("compare", run_dir, run_dir, "--json"))["metrics"]["val_loss"]
    assert compared["steps"] == [*evaluations.step.astype(int)]
    assert compared["at_step"] == [[pytest.approx(value, rel=1e-12)] * 2 for value in evaluations.val_loss]


def in_a_step(text):
    return text.rindex('"event":"step"') + 40


def in_an_evaluation(text):
    return text.rindex('"val_loss":') + 14


def before_its_end(text):
    return len(text) - 1


def in_its_first_line(text):
    return 20


def before_anything(text):
    return 0


@pytest.mark.parametrize(
    "where", [in_a_step, in_an_evaluation, before_its_end, in_its_first_line, before_anything]
)
@pytest.mark.all_tier("a cut at another place leaves whole lines, too", unless=lambda where: where is in_a_step)
def test_a_log_that_is_cut_off(where, folder, tmp_path):
    """Checks that the figures of a log that is cut off come from all of its complete lines."""
    run_dir = tmp_path / "cut"
    shutil.copytree(folder / "done", run_dir)
    text = log_text(run_dir)
    kept = text[: where(text)]
    (run_dir / "log.jsonl").write_text(kept)
    whole = [json.loads(line) for line in kept.splitlines(keepends=True) if line.endswith("\n")]
    line = runs_in(run_dir)["cut"]
    assert line["state"] == ("killed" if whole else "no log")
    assert line["step"] == max([one["step"] for one in whole if one["event"] in ("step", "eval")], default=0)
    losses = [one["val_loss"] for one in whole if one["event"] == "eval"]
    assert line["best"] == min(losses, default=None)
    assert view_of(run_dir)["state"] == line["state"]
    compared = Run(["compare", run_dir, folder / "done", "--json"])
    assert compared.status == DONE
    assert json.loads(compared.out)["metrics"]["val_loss"]["last"][0] == (losses[-1] if losses else None)
    warning = [] if whole else [f"lockstep: warning: {run_dir}/log.jsonl: tells of no run"]
    assert compared.error_lines == warning


@pytest.mark.all_tier("run_log_test.cc has lines that are none")
def test_lines_that_are_none(folder, found, tmp_path):
    """Checks that lines that are not valid events are skipped, and that `watch` prints their number."""
    run_dir = tmp_path / "odd"
    shutil.copytree(folder / "done", run_dir)
    lines = log_text(run_dir).split("\n")[:-1]
    odd = ["", "no JSON", "[1]", '{"event":"step","step":"x"}', '{"event":"eval","step":-1}', '{"no":"event"}', "\0\0"]
    mixed = [line for pair in zip(lines, odd) for line in pair] + lines[len(odd) :]
    (run_dir / "log.jsonl").write_text("\n".join(mixed) + "\n")
    assert runs_in(run_dir)["odd"] == found["done"] | {"run": str(run_dir)}
    assert view_of(run_dir)["log"].endswith(f"; {len(odd)} of its lines cannot be read")


def test_a_run_of_an_older_version(folder):
    """Reads the log of an older version. It has no times and no epochs, and its validation metrics have the names of
    training metrics."""
    shutil.copytree(OLDER_RUN, folder / "older")
    os.utime(folder / "older" / "log.jsonl", (1e9, 1e9))
    try:
        line = runs_in(folder)["older"]
        view = view_of(folder / "older")
        compared = json.loads(told("compare", folder / "older", folder / "done", "--json"))
    finally:
        shutil.rmtree(folder / "older")
    frame = frame_of(OLDER_RUN)
    evaluations = frame[frame.event == "eval"]
    assert (line["state"], line["step"], line["steps"], line["epoch"]) == ("done", 69, 69, 3)
    assert (line["start_time"], line["last_time"]) == (None, 1e9)
    assert line["samples_per_s"] == frame.samples_per_s.iloc[-1]
    assert line["best_metric"] == "val_loss"
    assert line["best"] == pytest.approx(evaluations.loss.min(), rel=1e-12)
    assert view["validation"].startswith(f"step 69:  val_loss {evaluations.loss.iloc[-1]:.4g}  val_accuracy 0.925")
    accuracy = compared["metrics"]["val_accuracy"]
    assert accuracy["steps"] == [23, 46, 69]
    assert [values[0] for values in accuracy["at_step"]] == [*evaluations.accuracy]
    assert compared["config"]["optimizer.lr"] == ["0.002", "0.003"]


def test_watch_on_a_terminal(folder, tmp_path):
    """Checks that `watch` follows the run on a terminal, and ends when the run ends."""
    with Started(folder / "config.pbtxt", tmp_path / "run", words=sets("epochs=100000")) as job:
        job.wait_for("eval")
        with Terminal([LOCKSTEP, "watch", tmp_path / "run"], {}) as terminal:
            terminal.wait_for(r"state +training")
            shown = int(re.findall(r"step +(\d+) of", terminal.text)[-1])
            terminal.wait_for(r" left\x1b\[K")

            def later():
                return any(int(step) > shown for step in re.findall(r"step +(\d+) of", terminal.text))

            terminal.wait_until(later)
            job.stop()
            assert terminal.end() == DONE
    screen, end = terminal.text.rsplit("\033[?7h\033[?25h\033[?1049l", 1)
    assert screen.startswith("\033[?1049h") and "stopped" in end
    assert end.replace("\r\n", "\n").startswith(f"run         {tmp_path / 'run'}\nstate       stopped: ")


@pytest.mark.all_tier("machine_test ends `watch` with the same key on every commit")
def test_watch_ends_at_a_key(folder, tmp_path):
    """Checks that the key q ends `watch`, and not the run."""
    with Started(folder / "config.pbtxt", tmp_path / "run", words=sets("epochs=100000")) as job:
        job.wait_for("eval")
        with Terminal([LOCKSTEP, "watch", tmp_path / "run"], {}) as terminal:
            terminal.wait_for(r"state +training")
            terminal.type(b"q")
            assert terminal.end() == DONE
        assert re.search(r"state +training", terminal.text.rsplit("\033[?1049l", 1)[1])
        assert job.stop()[0] == STOPPED


@pytest.mark.parametrize("way", ["done", "SIGKILL"])
@pytest.mark.all_tier("`watch` ends with a run that is stopped on every commit")
def test_watch_ends_with_the_run(way, folder, tmp_path):
    config = folder / "config.pbtxt"
    words = sets("epochs=100000") if way == "SIGKILL" else sets("epochs=60", "log.every_steps=100")
    with Started(config, tmp_path / "run", words=words) as job:
        job.wait_for("start")
        with Terminal([LOCKSTEP, "watch", tmp_path / "run"], {}) as terminal:
            if way == "SIGKILL":
                terminal.wait_for(r"state +training")
                job.process.send_signal(signal.SIGKILL)
            assert terminal.end() == DONE
        job.end()
    assert re.search(r"state +" + ("killed" if way == "SIGKILL" else "done"), terminal.text.rsplit("\033[?1049l", 1)[1])


@pytest.mark.all_tier("`watch` waits 20 s for a restart")
def test_watch_sees_a_restart(folder, tmp_path):
    """Checks that `watch` does not end when --restarts starts a failed job again, and that `watch` shows both starts as
    one run."""
    words = ["--restarts", 2, *sets("epochs=100000")]
    with Started(folder / "config.pbtxt", tmp_path / "run", ranks=2, words=words) as job:
        job.wait_for("eval")
        with Terminal([LOCKSTEP, "watch", tmp_path / "run"], {}) as terminal:
            terminal.wait_for(r"state +training")
            os.kill(job.rank(1), signal.SIGKILL)
            job.wait_for("start", 2)
            began = len(terminal.text)
            terminal.wait_until(lambda: re.search(r"state +training", terminal.text[began:]))
            assert job.stop()[0] == STOPPED
            assert terminal.end() == DONE
    assert re.search(r"state +stopped", terminal.text.rsplit("\033[?1049l", 1)[1])


def test_the_verdict_is_shown(folder, tmp_path):
    """Checks that `watch` shows the verdict with its remedy, the account of the seconds, and the machine's readings."""
    run_dir = tmp_path / "run"
    shutil.copytree(folder / "done", run_dir)
    lost = {"decoding": 2.5, "cores": 0.5, "other": 0.0}
    more = [
        {"event": "seconds", "step": 90, "steps": 89, "wall_s": 10.0, "ideal_s": 7.0, "lost_s": lost,
         "busy_share": 0.4567, "flops_share": 0.25, "joules_per_sample": 0.0625, "verdict": "70 % of its speed",
         "remedy": "loader.threads: 1 -> 2",
         "findings": [{"rule": "fp32", "words": "slow", "remedy": "precision: BF16"}]},
        {"event": "machine", "host": "node7", "cpu_use": 0.93, "cores": 2, "memory_used_bytes": 4 << 30,
         "memory_total_bytes": 16 << 30, "gpus": [
             {"index": 3, "use": 0.97, "memory_used_bytes": 71 << 30, "memory_total_bytes": 80 << 30, "power_w": 684,
              "temperature_c": 64, "throttled_by": ["heat"], "xid_error": 48}, 7]},
    ]  # fmt: skip
    with open(run_dir / "log.jsonl", "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in more)
    assert runs_in(run_dir)["run"]["verdict"] == "70 % of its speed"
    out = told("watch", run_dir, "--once")
    view = rows_of(out)
    assert (view["verdict"], view["finding"]) == ("70 % of its speed", "slow")
    assert view["remedy"] == "loader.threads: 1 -> 2; precision: BF16"
    assert view["GPU"].partition(";")[0] == "45.67 % of the time kernels run, 25 % of the peak FLOP/s, 0.0625 J a sample"
    assert view["seconds"] == "7.00 s   70 %  the steps at this run's best speed"
    assert view[""] == "2.50 s   25 %  lost to decoding; 0.50 s    5 %  lost to cores"
    assert view["machine"] == "node7  GPU 97 %  71 of 80 GiB  684 W  64 C"
    assert "\nGPU 3       clocks kept down by: heat\nGPU 3       XID error 48\n" in out


@pytest.mark.parametrize(
    "words, parts",
    [
        (["watch", "nothing"], ["nothing: there is no such folder"]),
        (["watch", "empty"], ["empty: it is no run folder"]),
        (["watch", "file", "--once"], ["file: it is no run folder"]),
        (["compare", "done", "empty"], ["empty: it is no run folder"]),
        (["runs", "nothing"], ["nothing: cannot be read: No such file or directory"]),
        (["runs", "file"], ["file: cannot be read: Not a directory"]),
    ],
)
@pytest.mark.all_tier(
    "files and empty folders are refused by the same check",
    unless=lambda words: "nothing" in words or words[0] == "compare",
)
def test_what_is_no_run(words, parts, folder):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "file").touch()
    expect_error(Run(words, cwd=folder), USAGE, *parts)


def test_a_folder_without_runs(tmp_path):
    run = Run(["runs", tmp_path])
    assert (run.status, run.out, run.err) == (DONE, "", f"{tmp_path}: there are no runs in it\n")


@pytest.mark.all_tier("run_log_test.cc and run_history_test.cc have runs without a log or a config")
def test_files_that_are_none(folder, tmp_path):
    """Checks that no command waits for a FIFO in the place of the log, and that `compare` leaves out the config's
    fields if the config cannot be read."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    os.mkfifo(run_dir / "log.jsonl")
    (run_dir / "config.pbtxt").write_text("of_tomorrow: 1")
    assert runs_in(tmp_path)["run"]["state"] == "no log"
    assert view_of(run_dir)["log"].startswith("cannot be read: it is a pipe")
    compared = Run(["compare", run_dir, folder / "done", "--json"])
    assert compared.status == DONE
    assert [line.partition(": ")[2].partition(": ")[2] != "" for line in compared.error_lines] == [True, True]
    assert json.loads(compared.out)["config"] == {}
