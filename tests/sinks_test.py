"""Tests the data that a run gives to other programs, by reading the data with these programs: TensorBoard's own reader,
Prometheus' parser and server, the user's alert command, and the script that imports a run into a tracker."""

import contextlib
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
from PIL import Image

from harness import (
    DATA,
    DIGITS,
    DONE,
    PEER,
    STOPPED,
    USAGE,
    Run,
    Started,
    checkpoint_folder,
    checkpoints,
    digits_config,
    digits_data,
    events,
    expect_error,
    faulty_data,
    faulty_model,
    in_mount_namespace,
    log_text,
    losses_by_step,
    path_of,
    sets,
    skip_without_gpus,
    train,
    wait_until,
    weight_bytes,
    weights_of,
    write_config,
)

FAULTY = path_of("FAULTY")
NO_MEMORY = 8
HOLDOUT = digits_data("validation_fraction: 0.2")


def free_port():
    """Returns a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- TensorBoard -----------------------------------------------------------------------------------------------------


def tensorboard(run_dir):
    """Returns TensorBoard's reader of a run, which has read all events so far."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
    return reader.Reload()


def scalars(reader, tag):
    """Returns {step: value} of a tag. Each step must occur once, in increasing order."""
    points = reader.Scalars(tag) if tag in reader.Tags()["scalars"] else []
    steps = [point.step for point in points]
    assert steps == sorted(set(steps)), tag
    return {point.step: point.value for point in points}


def logged(run_dir, kind, field, first=0):
    """Returns {step: value} of a field of the log's lines, rounded to float32 as in TensorBoard. If a step was made
    twice, the last line counts."""
    import numpy as np

    values = {line["step"]: line[field] for line in events(run_dir, kind) if field in line}
    return {step: float(np.float32(value)) for step, value in values.items() if step >= first}


TAGS = {  # tag -> (event, field) of the same values in the log
    "train_loss": ("step", "loss"),
    "epoch": ("step", "epoch"),
    "lr-AdamW": ("step", "lr"),
    "grad_norm": ("step", "grad_norm"),
    "train_loss_epoch": ("epoch", "train_loss"),
    "val_loss": ("eval", "val_loss"),
    "val_accuracy": ("eval", "val_accuracy"),
    "val_f1": ("eval", "val_f1"),
}


@pytest.mark.parametrize(
    "killed",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.all_tier("a killed run loses only its last second, and waiting takes seconds"),
        ),
    ],
)
def test_tensorboard_reads_a_run_over_a_restart(tmp_path, killed):
    """Checks that TensorBoard reads all steps of a resumed run. If the run was killed before, the steps of its last
    second may be missing."""
    skip_without_gpus(2)
    config = write_config(tmp_path, digits_config("observe { tensorboard: true }", HOLDOUT))
    run_dir = tmp_path / "run"
    with Started(config, run_dir, ranks=2) as job:
        if killed:
            job.wait_for("step", 3)
            assert Run(["checkpoint", run_dir]).status == DONE
            (step,) = checkpoints(run_dir)
            job.wait_until((run_dir / "tensorboard").is_dir)
            # The process has written steps after its checkpoint, which the resumed run makes again.
            job.wait_until(lambda: max(scalars(tensorboard(run_dir), "train_loss"), default=0) > step)
            os.kill(job.rank(0), signal.SIGKILL)
            job.end()
        else:
            job.wait_for("eval", 2)
            assert job.stop()[0] == STOPPED
    steps = max(line["step"] for line in events(run_dir, "step")) + 60
    run = train(config, run_dir, *sets(f"max_steps={steps}"), ranks=2)
    assert run.status == DONE, run
    (resumed,) = events(run_dir, "resume")
    reader = tensorboard(run_dir)
    for tag, (kind, field) in TAGS.items():
        first = resumed["step"] + 1 if killed else 0
        expected = logged(run_dir, kind, field, first)
        assert expected, tag
        found = scalars(reader, tag)
        assert {step: value for step, value in found.items() if step >= first} == expected, tag
        # The values that the killed process wrote for earlier steps are those in its log.
        assert found.items() <= logged(run_dir, kind, field).items(), tag
    assert scalars(reader, "throughput/samples_per_sec").keys() == scalars(reader, "train_loss").keys()


def expect_histograms(run_dir, step, values_by_tag):
    """Checks that TensorBoard reads the same histograms that PyTorch's own writer makes of `values_by_tag`."""
    from torch.utils.tensorboard import SummaryWriter

    peer = run_dir.with_name("peer")
    with SummaryWriter(str(peer / "tensorboard")) as writer:
        for tag, values in values_by_tag.items():
            writer.add_histogram(tag, values, step, bins="tensorflow")
    found, expected = tensorboard(run_dir), tensorboard(peer)
    for tag in values_by_tag:
        (one,) = [event for event in found.Histograms(tag) if event.step == step]
        (other,) = expected.Histograms(tag)
        one, other = one.histogram_value, other.histogram_value
        assert (one.bucket_limit, one.bucket) == (other.bucket_limit, other.bucket), tag
        assert (one.min, one.max, one.num) == (other.min, other.max, other.num), tag
        assert (one.sum, one.sum_squares) == pytest.approx((other.sum, other.sum_squares), rel=1e-9, abs=1e-12), tag
    shutil.rmtree(peer)


def gradients_of(run_dir, step):
    """Returns the gradients of a step whose state is saved. The optimizer is AdamW with beta1: 0, so its first moment
    is the gradient."""
    import safetensors.torch

    states = {}
    for path in checkpoint_folder(run_dir, step).glob("state-*.safetensors"):
        states |= safetensors.torch.load_file(path)
    prefix = "optimizer.exp_avg."
    return {name.removeprefix(prefix): tensor for name, tensor in states.items() if name.startswith(prefix)}


def test_histograms_are_pytorchs(tmp_path):
    """Checks that the histograms show the weights before a step's update, and the gradients over the samples of all
    ranks."""
    skip_without_gpus(2)
    observe = "observe { tensorboard: true histograms_every_steps: 3 }"
    config = write_config(tmp_path, digits_config(observe, optimizer="type: ADAMW lr: 0.003 beta1: 0"))
    for steps in (5, 6):
        assert train(config, tmp_path / f"run{steps}", *sets(f"max_steps={steps}"), ranks=2).status == DONE
    gradients = gradients_of(tmp_path / "run6", 6)
    values = {f"parameters/{name}": tensor for name, tensor in weights_of(tmp_path / "run5").items()}
    values |= {f"gradients/{name}": tensor for name, tensor in gradients.items()}
    assert len(values) == 8
    assert sorted(tensorboard(tmp_path / "run6").Tags()["histograms"]) == sorted(values)
    expect_histograms(tmp_path / "run6", 6, values)
    norm = sum(float(gradient.double().square().sum()) for gradient in gradients.values()) ** 0.5
    assert losses_by_step(tmp_path / "run6")[6][1] == pytest.approx(norm, rel=1e-6)
    # Exactly the steps 3 and 6 have histograms.
    assert [event.step for event in tensorboard(tmp_path / "run6").Histograms("gradients/0.weight")] == [3, 6]
    # With a sharded optimizer each rank has a part of the gradients. The parts have the same bits as the whole
    # gradients.
    sharded = train(config, tmp_path / "sharded", *sets("max_steps=6", "optimizer.shard=true"), ranks=2)
    assert sharded.status == DONE, sharded
    expect_histograms(tmp_path / "sharded", 6, values)


def test_histograms_change_no_bit(tmp_path):
    config = write_config(tmp_path, digits_config("observe { tensorboard: true }"))
    for name, every in (("without", 0), ("with", 1)):
        run = train(config, tmp_path / name, *sets("max_steps=20", f"observe.histograms_every_steps={every}"))
        assert run.status == DONE, run
    assert weight_bytes(tmp_path / "with") == weight_bytes(tmp_path / "without")
    # A process's first step has no histograms, because the program counts that step's operations instead.
    steps = [event.step for event in tensorboard(tmp_path / "with").Histograms("parameters/0.weight")]
    assert steps == [*range(2, 21)]


def test_histograms_leave_out_what_is_not_finite(tmp_path):
    """Checks that a step whose loss is not finite has histograms of the parameters and of the finite values of the
    gradients."""
    rows = [",".join(["3e38"] * 64 + ["0"])] * 640
    (tmp_path / "train.csv").write_text("\n".join(rows + DIGITS.read_text().splitlines()[:640]))
    more = "observe { tensorboard: true histograms_every_steps: 2 } anomaly { policy: SKIP }"
    config = write_config(tmp_path, digits_config(more, data=f'data {{ train: "{tmp_path}/train.csv" }}'))
    for steps in (1, 2):
        assert train(config, tmp_path / f"run{steps}", *sets(f"max_steps={steps}")).status == DONE
    assert events(tmp_path / "run2", "step")[-1]["skipped_steps"] == 2
    weights = weights_of(tmp_path / "run1")
    expect_histograms(tmp_path / "run2", 2, {f"parameters/{name}": tensor for name, tensor in weights.items()})
    reader = tensorboard(tmp_path / "run2")
    left = dict.fromkeys(weights, 0)
    for name in weights.keys() & {tag.removeprefix("gradients/") for tag in reader.Tags()["histograms"]}:
        value = reader.Histograms(f"gradients/{name}")[0].histogram_value
        left[name] = value.num
        assert sum(value.bucket) == value.num
        assert all(math.isfinite(number) for number in (value.min, value.max, value.sum, value.sum_squares))
    assert any(left[name] < weights[name].numel() for name in weights)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank gives way as two do", unless=lambda ranks: ranks == 2)
def test_histograms_give_way_to_the_step(tmp_path, ranks):
    """Checks that, if memory runs out in a step with histograms, the histograms are given up first."""
    skip_without_gpus(ranks)
    observe = "observe { tensorboard: true histograms_every_steps: 4 }"
    model = faulty_model(fault=NO_MEMORY, at=3, fits=32 if ranks is None else 16)
    config = write_config(tmp_path, digits_config(f"graph: false {observe}", model=model))
    run = train(config, tmp_path / "run", *sets("max_steps=9"), ranks=ranks, program=FAULTY)
    assert run.status == DONE, run
    warnings = [line for line in run.error_lines if "histograms" in line]
    assert len(warnings) == 1, run
    assert "step 4 does not fit in memory with histograms" in warnings[0], run
    # After the histograms are given up, the model itself still runs out of memory once, in step 4.
    assert [line["step"] for line in events(tmp_path / "run", "out_of_memory")] == [4]
    assert tensorboard(tmp_path / "run").Tags()["histograms"] == []
    whole = train(config, tmp_path / "whole", *sets("max_steps=9", "observe.histograms_every_steps=0"), ranks=ranks,
                  program=FAULTY)
    assert whole.status == DONE, whole
    assert weight_bytes(tmp_path / "run") == weight_bytes(tmp_path / "whole")


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def parsed(text):
    """Returns {(name, labels): value} of a metrics page, read by Prometheus' own parser for Python."""
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, sample
            found[key] = sample.value
    return found


def of_rank(page, name, rank, **labels):
    """Returns the value of the series `name` of a rank on a parsed page, or None if there is no such series."""
    (run,) = {dict(labels)["run"] for name, labels in page if name == "lockstep_ranks"}
    wanted = frozenset({"run": run, "rank": str(rank), **labels}.items())
    return page.get((name, wanted))


def scraped(port):
    """Returns the parsed metrics page of the port, or {} if nothing answers."""
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return parsed(answer.read().decode())
    return {}


def owner_of(port):
    """Returns the id of the process that listens on the port."""
    listens = f":{port:04X} 00000000:0000 0A"
    (line,) = [line for line in pathlib.Path("/proc/net/tcp").read_text().splitlines() if listens in line]
    wanted = f"socket:[{line.split()[9]}]"
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == wanted:
                return int(link.parts[2])
    raise AssertionError(f"nobody has port {port}")


class Shown:
    """Writes the config of a job of two ranks, and holds the metrics that the job shows on a port and in a file."""

    def __init__(self, tmp_path, port):
        self.port, self.file = port, tmp_path / "run.prom"
        observe = f'observe {{ prometheus_port: {port} prometheus_file: "{self.file}" }}'
        self.config = write_config(tmp_path, digits_config(f"{observe} checkpoint {{ every_steps: 50 }}", HOLDOUT))
        self.pages = []

    def has_both_ranks(self, restarts):
        """Returns whether the pages on the port and in the file have complete metrics of both ranks, in a job that was
        restarted `restarts` times."""
        self.pages = [scraped(self.port), parsed(self.file.read_text()) if self.file.exists() else {}]
        return all(
            page and all(of_rank(page, "lockstep_validation", rank, metric="accuracy") is not None for rank in (0, 1))
            and of_rank(page, "lockstep_restarts_total", 1) == restarts
            for page in self.pages
        )

    def expect_logged(self, run_dir):
        """Checks that on each page the figures of each rank are those of one step in the log."""
        fields = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "lr", "epoch": "epoch"}
        lines = {tuple(line[field] for field in fields.values()) for line in events(run_dir, "step")}
        for page in self.pages:
            for rank in (0, 1):
                assert tuple(of_rank(page, f"lockstep_{name}", rank) for name in fields) in lines
                assert of_rank(page, "lockstep_ranks", rank) == 2
                assert of_rank(page, "lockstep_step", rank) >= 1


def test_one_port_and_one_file_show_all_ranks(tmp_path):
    """Checks that one port and one file show the metrics of all ranks. If the port is in use, one warning line says so,
    and the job takes the port once it is free."""
    skip_without_gpus(2)
    run_dir = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        shown = Shown(tmp_path, port)
        with Started(shown.config, run_dir, ranks=2) as job:
            job.wait_for_text("observe.prometheus_port")
            job.wait_for("step", len(losses_by_step(run_dir)) + 10)
            other.close()
            job.wait_until(lambda: shown.has_both_ranks(restarts=0))
            status, _, err = job.stop()
    assert status == STOPPED
    (line,) = [line for line in err.splitlines() if "warning" in line]
    assert line.startswith(f"lockstep: warning: observe.prometheus_port: 127.0.0.1:{port}: Address already in use: ")
    shown.expect_logged(run_dir)
    # The job removes the file at its end. Otherwise node_exporter would go on showing the metrics of the ended job.
    assert not shown.file.exists()


class Strangers:
    """Clients of a port: `idle` connections that send nothing, and `dripping` ones that send a byte now and then, each of
    which connects again when the server has closed it."""

    def __init__(self, port, idle, dripping):
        self.port = port
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = idle + dripping + 200
        if soft < wanted <= hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        self.idle = [self.connect() for _ in range(idle)]
        self.dripping = [self.connect() for _ in range(dripping)]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def drip(self):
        for i, client in enumerate(self.dripping):
            try:
                client.send(b"G")
            except OSError:
                client.close()
                self.dripping[i] = self.connect()

    def leave(self):
        for client in (*self.idle, *self.dripping):
            client.close()


def strangers_config(folder, observe, **options):
    """Returns the path of a config that trains on image files, which each epoch opens again."""
    random = np.random.default_rng(1)
    for number in range(128):
        images = folder / "images" / f"class{number % 2}"
        images.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(images / f"{number}.png")
    text = digits_config(
        f"observe {{ {observe} }} loader {{ threads: 2 }} checkpoint {{ every_steps: 20 }}",
        f'data {{ format: IMAGES train: "{folder}/images" images {{ size: 8 }} }}',
        **options,
    )
    return write_config(folder, text)


def answer(port, host, path="/metrics"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.status


def answers(port, path="/metrics"):
    with contextlib.suppress(OSError):
        return answer(port, "localhost", path) == 200


FEW_DESCRIPTORS = ["prlimit", "--nofile=1024"]


def expect_told_of_strangers(err, field):
    (line,) = [line for line in err.splitlines() if "page of this run" not in line]
    assert line == f"lockstep: warning: observe.{field}: more than 32 connections at a time: the oldest are closed"


@pytest.mark.parametrize(
    "field,path",
    [
        pytest.param("prometheus_port", "/metrics", id="prometheus"),
        pytest.param("page_port", "/", id="page", marks=pytest.mark.all_tier("both ports have the same server")),
    ],
)
def test_strangers_cannot_end_a_training(field, path, tmp_path):
    """Connects 2,000 idle and 200 dripping clients to a port of a training that may have 1,024 descriptors and opens
    files in each step. The training makes the same steps as without them, tells of them in one line, and goes on
    answering. Nobody but this machine's own names is answered."""
    port = free_port()
    config = strangers_config(tmp_path, f"{field}: {port}")

    def steps(job):
        return log_text(job.run_dir).count('{"event":"step",')

    with Started(config, tmp_path / "run", launcher=FEW_DESCRIPTORS) as job:
        job.wait_until(lambda: answers(port, path))
        strangers = Strangers(port, idle=2000, dripping=200)
        until = steps(job) + 60

        def has_gone_on():
            strangers.drip()
            return steps(job) >= until

        job.wait_until(has_gone_on)
        for host in ("localhost", "LocalHost.", f"[::1]:{port}", f"127.0.0.1:{port}", socket.gethostname().upper() + ":1"):
            assert answer(port, host, path) == 200, host
        with pytest.raises(urllib.error.HTTPError, match="421"):
            answer(port, "evil.example", path)
        strangers.leave()
        status, _, err = job.stop()
    assert status == STOPPED
    expect_told_of_strangers(err, field)

    with Started(config, tmp_path / "quiet") as job:
        job.wait_until(lambda: steps(job) >= until)
        assert job.stop()[0] == STOPPED
    disturbed, quiet = losses_by_step(tmp_path / "run"), losses_by_step(tmp_path / "quiet")
    assert [disturbed[step] for step in range(1, until + 1)] == [quiet[step] for step in range(1, until + 1)]


@pytest.mark.all_tier("it trains to the end among strangers, and once without them")
def test_a_training_among_strangers_has_the_same_end(tmp_path):
    port = free_port()
    config = strangers_config(tmp_path, f"prometheus_port: {port}", epochs=1500)
    with Started(config, tmp_path / "run", launcher=FEW_DESCRIPTORS) as job:
        job.wait_until(lambda: answers(port))
        strangers = Strangers(port, idle=2000, dripping=200)
        assert job.process.poll() is None  # it trains among all of them
        while job.process.poll() is None:
            with contextlib.suppress(OSError):
                strangers.drip()
        strangers.leave()
        status, _, err = job.end()
    assert status == DONE, err
    expect_told_of_strangers(err, "prometheus_port")
    assert train(config, tmp_path / "quiet").status == DONE
    assert losses_by_step(tmp_path / "run") == losses_by_step(tmp_path / "quiet")
    assert weight_bytes(tmp_path / "run") == weight_bytes(tmp_path / "quiet")


@pytest.mark.all_tier("a restart takes seconds")
def test_a_port_whose_owner_is_killed_is_taken_over(tmp_path):
    """Kills the process that owns the port. The restarted job takes the port over."""
    skip_without_gpus(2)
    run_dir = tmp_path / "run"
    shown = Shown(tmp_path, free_port())
    with Started(shown.config, run_dir, ranks=2, words=["--restarts", "1"]) as job:
        job.wait_until(lambda: shown.has_both_ranks(restarts=0))
        job.wait_for("checkpoint")
        os.kill(owner_of(shown.port), signal.SIGKILL)
        job.wait_for("start", 2)
        job.wait_until(lambda: shown.has_both_ranks(restarts=1))
        assert job.stop()[0] == STOPPED
    shown.expect_logged(run_dir)
    assert not shown.file.exists()


def query(port, expression):
    """Returns the series, with labels and value, with which a Prometheus server on `port` answers the query
    `expression`."""
    address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    return []


@pytest.mark.all_tier("a Prometheus server and a restart take seconds")
def test_a_prometheus_server_scrapes_a_run_over_a_restart(tmp_path):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: third_party/apt-packages-tests.txt")
    skip_without_gpus(2)
    port, server_port = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: { scrape_interval: 1s, scrape_timeout: 1s }\n"
        f"scrape_configs: [{{ job_name: lockstep, static_configs: [{{ targets: ['127.0.0.1:{port}'] }}] }}]\n"
    )
    server = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/tsdb",
            f"--web.listen-address=127.0.0.1:{server_port}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open(tmp_path / "prometheus.err", "w"),
    )
    config = write_config(
        tmp_path, digits_config(f"observe {{ prometheus_port: {port} }} checkpoint {{ every_steps: 50 }}")
    )
    run_dir = tmp_path / "run"

    def values(name):
        return {series["metric"]["rank"]: float(series["value"][1]) for series in query(server_port, name)}

    try:
        with Started(config, run_dir, ranks=2, words=["--restarts", "1"]) as job:
            job.wait_until(lambda: set(values("lockstep_loss")) == {"0", "1"})
            before = values("lockstep_step")
            job.wait_until(lambda: values("lockstep_step")["0"] > before["0"])
            job.wait_for("checkpoint")
            os.kill(job.rank(1), signal.SIGKILL)
            job.wait_for("start", 2)
            job.wait_until(lambda: values("lockstep_restarts_total") == {"0": 1, "1": 1})
            (resumed,) = events(run_dir, "resume")
            job.wait_until(lambda: values("lockstep_step").get("0", 0) > resumed["step"] and values("lockstep_loss"))
            # The counters of a new process start at zero. Prometheus relies on this when it computes rates.
            counted = {rank: values("lockstep_steps_total")[rank] for rank in "01"}
            planned = values("lockstep_steps_planned")
            history = query(server_port, 'lockstep_loss{rank="0"}[1h]')[0]["values"]
            assert job.stop()[0] == STOPPED
        # Prometheus adds a sample to this series at each scrape, so the series exists only if Prometheus has scraped
        # the target.
        errors = query(server_port, "scrape_samples_post_metric_relabeling")
        assert errors, "no scrape has succeeded"
    finally:
        server.terminate()
        server.wait()
    assert "err=" not in (tmp_path / "prometheus.err").read_text()
    (_, second) = events(run_dir, "start")
    assert planned == {"0": second["steps"], "1": second["steps"]}
    last = max(losses_by_step(run_dir))
    assert all(0 < count <= last - resumed["step"] for count in counted.values())
    logged_losses = {line["loss"] for line in events(run_dir, "step")}
    assert {float(value) for _, value in history} <= logged_losses


# ---- Sinks that fail -------------------------------------------------------------------------------------------------


def fail_by_a_file(tmp_path, run_dir):
    """Makes both sinks fail: a file has the name of TensorBoard's folder, and the folder of the Prometheus file does
    not exist."""
    (run_dir / "tensorboard").write_text("")
    return (), tmp_path / "nowhere" / "run.prom"


def fail_by_a_full_disk(tmp_path, run_dir):
    folder = run_dir / "tensorboard"
    folder.mkdir()
    fill = f"mount -t tmpfs -o size=4k tmpfs {folder}\nhead -c 4096 /dev/zero >{folder}/full"
    return in_mount_namespace(tmp_path, fill), folder / "run.prom"


def fail_by_a_read_only_disk(tmp_path, run_dir):
    folder = run_dir / "tensorboard"
    folder.mkdir()
    return in_mount_namespace(tmp_path, f"mount -t tmpfs -o ro tmpfs {folder}"), folder / "run.prom"


DISK = pytest.mark.all_tier("a disk that fails gives the same warning as a file in the way")


@pytest.mark.parametrize(
    "fail",
    [
        fail_by_a_file,
        pytest.param(fail_by_a_full_disk, marks=DISK),
        pytest.param(fail_by_a_read_only_disk, marks=DISK),
    ],
)
def test_a_sink_that_fails_changes_nothing(tmp_path, fail):
    """Checks that the run prints one warning for each failed sink, and is otherwise unchanged."""
    config = write_config(tmp_path, digits_config())
    run_dir = tmp_path / "run"
    with Started(config, run_dir) as job:
        job.wait_for("step", 3)
        assert job.stop()[0] == STOPPED
    steps = sets(f"max_steps={max(losses_by_step(run_dir)) + 60}")
    assert train(config, tmp_path / "alone", *steps).status == DONE
    launcher, text_file = fail(tmp_path, run_dir)
    run = train(
        config, run_dir, *steps, *sets("observe.tensorboard=true", f"observe.prometheus_file={text_file}"),
        launcher=launcher,
    )
    assert run.status == DONE, run
    warnings = sorted(run.error_lines)
    assert len(warnings) == 2, run
    assert warnings[0].startswith(f"lockstep: warning: {run_dir}/tensorboard"), run
    assert warnings[1].startswith("lockstep: warning: observe.prometheus_file: "), run
    assert str(text_file) in warnings[1], run
    assert weight_bytes(run_dir) == weight_bytes(tmp_path / "alone")


# ---- The alert command -----------------------------------------------------------------------------------------------


def alert_to(path):
    """Returns the arguments that set an alert command which appends a line with its variables to a file."""
    variables = '"$LOCKSTEP_ALERT" "$LOCKSTEP_RUN" "$LOCKSTEP_MESSAGE"'
    return sets(f"""observe.on_alert=printf '%s\\t%s\\t%s\\n' {variables} >>{path}""")


def alerts(path):
    """Returns the variables of each alert so far."""
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank runs the command as two do", unless=lambda ranks: ranks == 2)
def test_a_failure_runs_the_alert_command(tmp_path, ranks):
    """Checks that the command runs once, with the error line with which the run ends."""
    skip_without_gpus(ranks)
    rows = DIGITS.read_text().splitlines()
    rows[200] = ",".join(["3e38"] * 64 + ["0"])
    (tmp_path / "train.csv").write_text("\n".join(rows))
    config = write_config(tmp_path, digits_config(data=f'data {{ train: "{tmp_path}/train.csv" }}', epochs=1))
    run = train(config, tmp_path / "run", *alert_to(tmp_path / "alerts"), ranks=ranks)
    expect_error(run, USAGE, "the loss is ")
    ((kind, run_dir, message),) = alerts(tmp_path / "alerts")
    assert (kind, run_dir) == ("failed", str(tmp_path / "run"))
    (failed,) = events(tmp_path / "run", "failed")
    assert message == f"step {failed['step']}: status {USAGE}: {failed['reason']}"
    assert run.error_lines[0] == f"lockstep: error: {failed['reason']}"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.all_tier(
    "the rank that is left runs the same command, whichever rank is lost",
    unless=lambda rank: rank == 1,
)
def test_a_rank_that_is_lost_runs_the_alert_command(tmp_path, rank):
    """Checks that the command runs once, started by the remaining rank."""
    skip_without_gpus(2)
    config, words = write_config(tmp_path, digits_config()), alert_to(tmp_path / "alerts")
    with Started(config, tmp_path / "run", ranks=2, words=words) as job:
        job.wait_for("step", 2)
        os.kill(job.rank(rank), signal.SIGKILL)
        status, _, err = job.end()
    assert status == PEER
    wait_until(lambda: alerts(tmp_path / "alerts"))
    ((kind, run_dir, message),) = alerts(tmp_path / "alerts")
    assert (kind, run_dir) == ("failed", str(tmp_path / "run"))
    assert message.startswith(f"status {PEER}: rank {rank} died: ")
    assert message.removeprefix(f"status {PEER}: ") in err


@pytest.mark.all_tier("a rank that is lost runs the same command on every commit")
def test_a_rank_that_fails_alone_runs_the_alert_command(tmp_path):
    skip_without_gpus(2)
    config = write_config(tmp_path, digits_config(data=faulty_data(rank=1, at=200)))
    run = train(config, tmp_path / "run", *alert_to(tmp_path / "alerts"), ranks=2, program=FAULTY)
    expect_error(run, DATA, "the file is cut short")
    wait_until(lambda: alerts(tmp_path / "alerts"))
    assert alerts(tmp_path / "alerts") == [
        ["failed", str(tmp_path / "run"), f"status {DATA}: rank 1 ended with an error of its own"]
    ]


def test_a_stall_runs_the_alert_command(tmp_path):
    """Suspends a rank for longer than stall_s, and then lets it continue."""
    skip_without_gpus(2)
    words = alert_to(tmp_path / "alerts") + sets("observe.stall_s=1", "observe.alert_below=0")
    with Started(write_config(tmp_path, digits_config()), tmp_path / "run", ranks=2, words=words) as job:
        job.wait_for("step", 2)
        halted = job.rank(1)
        os.kill(halted, signal.SIGSTOP)
        last = max(losses_by_step(tmp_path / "run"))
        # At least one alert names the last step before the rank was suspended, or a later one.
        job.wait_until(lambda: any(int(alert[2].split()[-1]) >= last for alert in alerts(tmp_path / "alerts")))
        os.kill(halted, signal.SIGCONT)
        lines = log_text(tmp_path / "run").count("\n")
        job.wait_for("step", lines + 2)
        assert job.stop()[0] == STOPPED
    # There may be further alerts, because a busy machine may stall the run at other times.
    found = alerts(tmp_path / "alerts")
    assert {(kind, run_dir) for kind, run_dir, _ in found} == {("stalled", str(tmp_path / "run"))}
    assert all(re.fullmatch(r"no step for \d+ s after step \d+", message) for _, _, message in found)


@pytest.mark.parametrize(
    "below, told",
    [
        (1, ["slow"]),
        pytest.param(0, [], marks=pytest.mark.all_tier("a limit that no run is below shows only that nothing is told")),
    ],
)
def test_a_slow_run_runs_the_alert_command(tmp_path, below, told):
    """Tests alert_below with 1 and 0: every run is slower than its best speed at times, and no run is slower than 0."""
    config = write_config(tmp_path, digits_config())
    words = alert_to(tmp_path / "alerts") + sets(f"observe.alert_below={below}", "max_steps=300")
    run = train(config, tmp_path / "run", *words)
    assert (run.status, run.err) == (DONE, "")
    found = alerts(tmp_path / "alerts")
    assert [kind for kind, _, _ in found] == told
    for _, run_dir, message in found:
        assert run_dir == str(tmp_path / "run")
        assert re.match(r"step \d+: trains at \d+ % of its own best speed, less than observe.alert_below", message)


def test_an_alert_command_that_fails_is_said(tmp_path):
    config = write_config(tmp_path, digits_config())
    words = sets("observe.on_alert=exit 7", "observe.alert_below=1", "max_steps=30")
    run = train(config, tmp_path / "run", *words)
    assert run.status == DONE, run
    assert run.error_lines == ["lockstep: warning: observe.on_alert: the command failed with status 7"], run


# ---- Import into trackers --------------------------------------------------------------------------------------------

IMPORT = pathlib.Path(os.environ.get("IMPORT_RUN", "examples/trackers/import_run.py")).absolute()
TRACKER = """
import json, os

def tell(*what):
    with open(os.environ["CALLS"], "a") as file:
        print(json.dumps(what), file=file)

def init(**options): tell("init", options)
def log(numbers, step): tell("log", step, numbers)
def finish(): tell("finish")
"""


def import_run(run_dir, tracker, **env):
    """Runs the import command to its end, and returns the finished process."""
    words = [sys.executable, IMPORT, run_dir, "--to", tracker, "--project", "digits"]
    return subprocess.run(words, env=os.environ | env, cwd=run_dir.parent, capture_output=True, text=True, timeout=120)


def resumed_run(tmp_path):
    """Returns the folder of a run that resumed from a step before the last one in its log."""
    config = write_config(tmp_path, digits_config("checkpoint { every_steps: 20 }", HOLDOUT))
    run_dir = tmp_path / "run"
    with Started(config, run_dir) as job:
        job.wait_until(lambda: checkpoints(run_dir) and max(losses_by_step(run_dir)) > max(checkpoints(run_dir)))
        job.process.kill()
        job.end()
    steps = max(losses_by_step(run_dir)) + 30
    assert train(config, run_dir, *sets(f"max_steps={steps}")).status == DONE
    return run_dir


def cut(run_dir):
    """Appends an incomplete line to the log."""
    with open(run_dir / "log.jsonl", "a") as file:
        file.write('{"event":"step","time":17')


def expect_imported(run_dir, by_step):
    """Checks that the values that the tracker got are those of the log."""
    for tag, (kind, field) in TAGS.items():
        name = "lr" if field == "lr" else tag
        expected = {line["step"]: line[field] for line in events(run_dir, kind)}
        assert {step: numbers[name] for step, numbers in by_step.items() if name in numbers} == expected, name


@pytest.mark.parametrize(
    "tracker",
    [
        "wandb",
        pytest.param("trackio", marks=pytest.mark.all_tier("trackio gets the same calls as wandb")),
    ],
)
def test_the_script_imports_a_run(tmp_path, tracker):
    """Checks the calls that a stand-in for the tracker records. Both trackers document these calls."""
    run_dir = resumed_run(tmp_path)
    (tmp_path / f"{tracker}.py").write_text(TRACKER)
    whole = import_run(run_dir, tracker, PYTHONPATH=str(tmp_path), CALLS=str(tmp_path / "calls"))
    assert whole.returncode == 0, whole
    first, *logs, last = map(json.loads, (tmp_path / "calls").read_text().split("\n")[:-1])
    assert (first[0], last) == ("init", ["finish"])
    assert (first[1]["project"], first[1]["name"]) == ("digits", "run")
    assert first[1]["config"]["config.pbtxt"] == (run_dir / "config.pbtxt").read_text()
    assert first[1]["config"]["world_size"] == 1
    by_step = {step: numbers for _, step, numbers in logs}
    assert [step for _, step, _ in logs] == sorted(by_step)
    expect_imported(run_dir, by_step)
    # An incomplete last line of the log is ignored.
    cut(run_dir)
    (tmp_path / "calls").unlink()
    assert import_run(run_dir, tracker, PYTHONPATH=str(tmp_path), CALLS=str(tmp_path / "calls")).returncode == 0
    assert [json.loads(line) for line in (tmp_path / "calls").read_text().split("\n")[:-1]][1:-1] == logs


def test_the_script_imports_what_was_made_last(tmp_path):
    """Imports a log in which the run started again at its first step, so the log has several lines for the same step.
    Lines that are not JSON objects are skipped."""

    def line(event, step=None, **fields):
        return json.dumps({"event": event, "time": 1} | ({} if step is None else {"step": step}) | fields)

    lines = [
        line("start", samples=1),
        *(line("step", step, loss=step) for step in (1, 2, 3)),
        line("eval", 3, val_loss=0.5),
        line("start", samples=1),
        line("step", 1, loss=10),
        "7",
        '["event"]',
        # Python's str.splitlines() would split this line at U+2028.
        json.dumps({"event": "step", "step": 2, "loss": 20, "note": "a\u2028b"}, ensure_ascii=False),
        line("step", 3, loss=30),
        line("step", 4, loss=40),
        line("step", 3, loss=300),
    ]
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "log.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "wandb.py").write_text(TRACKER)
    done = import_run(run_dir, "wandb", PYTHONPATH=str(tmp_path), CALLS=str(tmp_path / "calls"))
    assert done.returncode == 0, done
    _, *logs, _ = map(json.loads, (tmp_path / "calls").read_text().split("\n")[:-1])
    assert logs == [["log", step, {"train_loss": loss}] for step, loss in ((1, 10), (2, 20), (3, 300))]


def records_of(path):
    """Yields the records of a file in the format of LevelDB's log, behind the header of Weights & Biases."""
    content, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # the rest of the block is padding
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or a record's last fragment
            yield record
            record = b""


@pytest.mark.all_tier("a stand-in for wandb gets the same calls on every commit")
def test_weights_and_biases_keeps_what_is_imported(tmp_path):
    """Imports a run into an offline run of Weights & Biases, and reads the values from the file of that run."""
    pytest.importorskip("wandb", reason="wandb is not installed: .venv/bin/pip install wandb")
    from wandb.proto import wandb_internal_pb2

    run_dir = resumed_run(tmp_path)
    done = import_run(run_dir, "wandb", WANDB_MODE="offline")
    assert done.returncode == 0, done
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    by_step = {}
    for text in records_of(path):
        record = wandb_internal_pb2.Record.FromString(text)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            numbers = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
            by_step[numbers["_step"]] = numbers
    expect_imported(run_dir, by_step)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda folder: None, "log.jsonl: No such file or directory: name the folder of a run"),
        (lambda folder: (folder / "log.jsonl").write_text('{"event":"start"}\n'), "log.jsonl: has no steps yet"),
        (lambda folder: (folder / "log.jsonl").write_text('{"event":"step","step":1,"loss":1}\n'), "is not installed"),
    ],
)
def test_what_cannot_be_imported_is_said_in_a_line(tmp_path, make, words):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    make(run_dir)
    # The module of the tracker cannot be imported.
    (tmp_path / "wandb.py").write_text("raise ImportError")
    done = import_run(run_dir, "wandb", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("import_run: ") and words in line
