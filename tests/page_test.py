"""Tests the page of `lockstep watch RUN --page`, `observe.page_port` and `lockstep report`: its data are compared with
what pandas reads in the log. tests/page_browser_test.py tests the page in a browser."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pandas as pd
import pytest

from harness import (
    CHECKPOINT,
    DONE,
    LONG_S,
    STOPPED,
    USAGE,
    Run,
    Started,
    command_of,
    digits_config,
    digits_data,
    events,
    expect_error,
    log_text,
    path_of,
    train,
    wait_until,
    write_config,
)

OLDER_RUN = pathlib.Path(path_of("OLDER_RUN")).parent
HOLDOUT = digits_data("validation_fraction: 0.2")


def get(url, **values):
    """Returns the text at a URL, with `values` added to the URL's query."""
    parts = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(parts.query), **values)
    with urllib.request.urlopen(parts._replace(query=urllib.parse.urlencode(query)).geturl(), timeout=LONG_S) as answer:
        return answer.read().decode()


def status_of(url):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url)
    return refused.value.code


def data_in(html):
    """Returns the data that a page contains."""
    return json.loads(re.search(r'<script type="application/json" id="data">([^<]*)</script>', html)[1])


@contextlib.contextmanager
def served(*words):
    """Yields the URL of `watch WORDS --page`. At the end of the `with` block a signal stops the server, which must exit
    without an error."""
    process = subprocess.Popen(
        command_of(["watch", *words, "--page", "--port", 0]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.startswith("http://"), line + process.stderr.read()
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)
        assert (process.returncode, out, err) == (DONE, "", "")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Returns the folder of a run of two ranks."""
    folder = tmp_path_factory.mktemp("page")
    config = write_config(folder, digits_config("observe { readings_every_s: 0.05 }", data=HOLDOUT, epochs=20))
    run = train(config, folder / "run", ranks=2)
    assert run.status == DONE, run
    return folder / "run"


def expect_is_log(run, run_dir):
    """Checks that a run in the page's data has the values that pandas reads in the log."""
    log = pd.read_json(run_dir / "log.jsonl", lines=True)
    steps = log[log.event == "step"]
    assert run["steps_logged"] == len(steps)
    curves = run["curves"]
    assert curves["step"] == steps.step.astype(int).tolist()
    for name in ("loss", "lr", "grad_norm", "samples_per_s"):
        assert curves["figures"][name]["mean"] == pytest.approx(steps[name].tolist(), rel=1e-5), name
    began = log.time.dropna().min()
    assert curves["time"] == pytest.approx((steps.time - began).tolist(), abs=0.011)
    evaluations = log[log.event == "eval"]
    assert run["evaluations"]["step"] == evaluations.step.astype(int).tolist()
    assert run["evaluations"]["figures"]["val_loss"]["mean"] == pytest.approx(evaluations.val_loss.tolist(), rel=1e-5)
    assert run["best"]["value"] == pytest.approx(evaluations.val_loss.min(), rel=1e-5)
    assert run["seconds"] == events(run_dir, "seconds")[-1]


def test_the_page_of_a_run(run_dir, tmp_path):
    copy = tmp_path / "copy"  # without checkpoints and weights, as if copied to another machine
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("checkpoints", "*.safetensors"))
    with served(copy) as url:
        html = get(url)
        data = data_in(html)
        assert data["live"] is True
        (run,) = data["runs"]
        assert (run["state"], run["name"]) == ("done", str(copy))
        expect_is_log(run, copy)
        assert [rank["rank"] for rank in run["ranks"]["ranks"]] == [0, 1]
        assert run["ranks"]["collectives"] > 0
        assert "optimizer.lr: 0.003" in run["config"]
        assert [*run["readings"]["figures"]] == ["cpu_use", "memory_used_bytes", "process_memory_bytes"]
        # A request for news returns no run until a line is appended to the log, and then returns the run with that
        # line.
        version = data["version"]
        assert json.loads(get(url + "data", since=version))["runs"] == []
        last = events(copy, "step")[-1]
        with open(copy / "log.jsonl", "a") as log:
            log.write(json.dumps(last | {"step": last["step"] + 1, "loss": 0.125}) + "\n")
        (run,) = json.loads(get(url + "data", since=version))["runs"]
        assert run["curves"]["figures"]["loss"]["mean"][-1] == 0.125
        ((part),) = json.loads(get(url + "curves", axis="step", **{"from": last["step"], "to": last["step"] + 1}))
        assert part["curves"]["step"] == [last["step"], last["step"] + 1]
        assert status_of(url + "log.jsonl") == 404


def test_an_address_beyond_this_machine_needs_a_token(run_dir):
    with served(run_dir, "--bind", "0.0.0.0") as url:
        parts = urllib.parse.urlsplit(url)
        local = f"http://127.0.0.1:{parts.port}/"
        assert re.fullmatch(r"token=[0-9a-f]{32}", parts.query)
        assert data_in(get(f"{local}?{parts.query}"))["runs"][0]["name"] == str(run_dir)
        assert json.loads(get(f"{local}data?{parts.query}", since=-1))["runs"]
        for wrong in ("", "?token=", "?token=" + 32 * "0", f"?{parts.query}0"):
            for path in ("", "data", "curves", "anything"):
                assert status_of(local + path + wrong) == 401


def test_a_folder_of_runs(run_dir, tmp_path):
    for name, words in (("b", []), ("a", []), ("older", None)):
        source = OLDER_RUN if words is None else run_dir
        shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints", "*.safetensors"))
    config = tmp_path / "b" / "config.pbtxt"
    config.write_text(config.read_text().replace("lr: 0.003", "lr: 0.004"))
    report = tmp_path / "out" / "report.html"
    report.parent.mkdir()
    written = Run(["report", tmp_path / "a", tmp_path / "b", "--output", report])
    assert (written.status, written.err) == (DONE, ""), written
    assert data_in(report.read_text())["differences"] == [{"field": "optimizer.lr", "values": ["0.003", "0.004"]}]
    written = Run(["report", tmp_path, "--output", report])
    assert (written.status, written.err) == (DONE, ""), written
    data = data_in(report.read_text())
    assert [pathlib.Path(run["name"]).name for run in data["runs"]] == ["a", "b", "older"]
    assert data["live"] is False
    older = data["runs"][2]
    # The older version wrote no times, no account of seconds and no readings.
    assert (older["state"], older["step"], older["first_time"], older["seconds"], older["machine"]) == ("done", 69, None, None, None)
    assert older["curves"]["step"] == [1, 10, 20, 30, 40, 50, 60, 69]
    assert older["curves"]["time"] == 8 * [None]
    assert older["evaluations"]["figures"]["val_loss"]["mean"][-1] == pytest.approx(0.43444, rel=1e-4)


@pytest.mark.all_tier("unit tests of observe/page show what a killed run gives")
def test_a_run_that_was_killed(tmp_path):
    config = write_config(tmp_path, digits_config(data=HOLDOUT))
    report = tmp_path / "report.html"
    with Started(config, tmp_path / "run") as job:
        job.wait_for("eval")
        job.process.kill()
        job.process.wait()
    with open(tmp_path / "run" / "log.jsonl", "a") as log:
        log.write('{"event":"step","step":99')
    assert Run(["report", tmp_path / "run", "--output", report]).status == DONE
    (run,) = data_in(report.read_text())["runs"]
    assert (run["state"], run["bad_lines"]) == ("killed", 0)
    # The last line is incomplete: this test appended it, perhaps to a line that the kill had cut off.
    steps = [json.loads(line)["step"] for line in log_text(tmp_path / "run").split("\n")[:-2] if '"event":"step"' in line]
    assert run["curves"]["step"][-1] <= steps[-1] and run["steps_logged"] == len(steps)


FURTHER_MISTAKE = pytest.mark.all_tier("it is a further mistake of a command line")


@pytest.mark.parametrize(
    "words, parts",
    [
        (["watch", "EMPTY", "--page"], ["EMPTY: it is no run folder, and there are no run folders in it"]),
        (["report", "EMPTY", "--output", "OUTPUT"], ["EMPTY: it is no run folder"]),
        pytest.param(
            ["report", "RUN", "NONE", "--output", "OUTPUT"],
            ["NONE: there is no such folder"],
            marks=FURTHER_MISTAKE,
        ),
        pytest.param(["watch", "--page"], ["--page: name run folders"], marks=FURTHER_MISTAKE),
        pytest.param(["watch", "RUN", "--page", "--once"], ["--once"], marks=FURTHER_MISTAKE),
        pytest.param(["watch", "RUN", "--port", "9600"], ["belong to --page"], marks=FURTHER_MISTAKE),
        pytest.param(["watch", "RUN", "RUN"], ["2 runs", "--page"], marks=FURTHER_MISTAKE),
        pytest.param(
            ["watch", "RUN", "--page", "--bind", "here"],
            ["--port: here:9500", "--bind needs an address in numbers"],
            marks=FURTHER_MISTAKE,
        ),
        pytest.param(
            ["watch", "RUN", "--page", "--bind", "192.0.2.1"],
            ["set --bind to an address of this machine"],
            marks=FURTHER_MISTAKE,
        ),
    ],
    ids=["watch", "report", "none", "nothing", "once", "port", "several", "name", "address"],
)
def test_what_has_no_page(tmp_path, words, parts):
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").touch()
    places = {name.upper(): str(tmp_path / name) for name in ("empty", "run", "none", "output")}

    def placed(text):
        for name, path in places.items():
            text = text.replace(name, path)
        return text

    expect_error(Run(map(placed, words)), USAGE, *map(placed, parts))
    assert not (tmp_path / "output").exists()


def test_a_report_that_cannot_be_written(tmp_path, run_dir):
    expect_error(Run(["report", run_dir, "--output", tmp_path]), CHECKPOINT, str(tmp_path), "folder")
    expect_error(Run(["report", run_dir, "--output", tmp_path / "none" / "a.html"]), CHECKPOINT, "none")
    # `report` writes to a FIFO and does not replace it by a file.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        written = Run(["report", run_dir, "--output", pipe])
        assert data_in(reader.communicate(timeout=LONG_S)[0])["runs"]
    assert written.status == DONE and pipe.is_fifo(), written


def test_a_port_that_is_taken(run_dir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        expect_error(
            Run(["watch", run_dir, "--page", "--port", port]), USAGE, f"--port: 127.0.0.1:{port}: Address already in use"
        )


def test_a_run_shows_its_page(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = write_config(tmp_path, digits_config(f"observe {{ page_port: {port} }}", data=HOLDOUT))
    with Started(config, tmp_path / "run") as job:
        job.wait_for_text("the page of this run")
        url = f"http://127.0.0.1:{port}/"
        assert job.texts()[1] == f"the page of this run: {url}\n"
        job.wait_for("eval")
        data = data_in(get(url))
        (run,) = data["runs"]
        assert (run["state"], data["live"]) == ("training", True)
        news = lambda: json.loads(get(url + "data", since=data["version"]))["runs"]  # noqa: E731
        wait_until(lambda: any(changed.get("step", 0) > run["step"] for changed in news()))
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(LONG_S) == STOPPED


@pytest.mark.all_tier("`watch --page` meets a taken port on every commit")
def test_a_run_whose_port_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = write_config(tmp_path, digits_config(f"observe {{ page_port: {port} }}"))
        with Started(config, tmp_path / "run") as job:
            job.wait_for_text("observe.page_port")
            job.process.send_signal(signal.SIGTERM)
            assert job.process.wait(LONG_S) == STOPPED
    (line,) = [line for line in job.texts()[1].splitlines() if "page_port" in line]
    assert line.startswith(f"lockstep: warning: observe.page_port: 127.0.0.1:{port}: Address already in use: ")
    assert line.endswith("(the run goes on, and tries again each second)")
