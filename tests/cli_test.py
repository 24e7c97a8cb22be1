"""Tests the command line as a user sees it: the commands train, evaluate, predict, config, version, bench and flight,
and mistakes in their use."""

import json
import os
import pathlib
import re
import tempfile

import numpy as np
import pytest
import torch

from harness import (
    CHECKPOINT,
    DATA,
    DEVICE,
    DIGITS,
    DONE,
    LOCKSTEP,
    USAGE,
    Run,
    digits_data,
    events,
    expect_error,
    path_of,
    predict,
    sets,
    skip_without_gpus,
    split_digits,
    train,
    weight_bytes,
    weights_of,
    write_config,
)

OWN_MODEL = path_of("OWN_MODEL")

# A folder that holds a config but no run.
EXAMPLE_FOLDER = pathlib.Path(tempfile.mkdtemp())
write_config(EXAMPLE_FOLDER, digits_data())

RANKS = [None, 2] if DEVICE == "CPU" or torch.cuda.device_count() > 1 else [None]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns (a folder with train.csv and test.csv, the folder of a finished run, the `Run` of the training command).
    """
    folder = tmp_path_factory.mktemp("trained")
    split_digits(folder)
    config = write_config(
        folder,
        digits_data('validation: "test.csv"', train="train.csv")
        + """model { mlp { hidden: [256, 128] } }
        optimizer { lr: 0.002 weight_decay: 0.01 } schedule { type: COSINE } epochs: 60""",
    )
    run = train(config, folder / "run", ranks=RANKS[-1])
    assert run.status == DONE, run
    return folder, folder / "run", run


def test_digits_are_learned(trained):
    """Checks that the validation accuracy is at least 98.5%. The model, batch, ranks and split are those of the
    comparison with PyTorch (tests/bench/digits_ddp.py)."""
    done = events(trained[1], "done")[0]
    assert done["val_accuracy"] >= 0.985


def test_the_log_tells_the_story(trained):
    log = events(trained[1])
    assert [log[0]["event"], log[-1]["event"]] == ["start", "done"]
    assert log[0]["samples"] == 1437 and log[0]["validation_samples"] == 360
    steps = [e for e in log if e["event"] == "step"]
    assert {"step", "epoch", "loss", "lr", "samples_per_s"} <= set(steps[0])
    assert steps[0]["step"] == 1 and steps[-1]["step"] == 60 * 23
    assert steps[-1]["loss"] < steps[0]["loss"] / 10
    evaluations = [e for e in log if e["event"] == "eval"]
    assert [e["epoch"] for e in evaluations] == list(range(1, 61))
    assert evaluations[-1]["val_accuracy"] == log[-1]["val_accuracy"]
    assert log[-1]["first_step_s"] > 0 and log[-1]["samples_per_s"] > 0
    # If an interval's samples and seconds were counted from different moments, its speed could be far too high. Each
    # interval's speed must be less than 20 times that of the whole run.
    assert max(s["samples_per_s"] for s in steps) < 20 * log[-1]["samples_per_s"]


def test_away_from_a_terminal_lines_are_plain(trained):
    assert "\r" not in trained[2].out and "\033" not in trained[2].out
    assert re.search(r"^epoch 60/60  step 1380/1380  training loss 0\.\d+  validation loss 0\.\d+  accuracy 0\.\d+  top5 [01]\.\d+  f1 0\.\d+$", trained[2].out, re.M)


def test_n_prints_the_command_that_it_runs(trained):
    if RANKS[-1] is None:
        pytest.skip("two ranks need two GPUs")
    command = trained[2].err.splitlines()[0]
    assert " mpirun -n 2 " in command and command.endswith(f"run_dir={trained[1]}")


def test_python_opens_the_weights_and_they_are_what_was_evaluated(trained):
    folder, run_dir, _ = trained
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    model.load_state_dict(weights_of(run_dir))
    rows = torch.from_numpy(np.loadtxt(folder / "test.csv", delimiter=",", dtype=np.float32))
    with torch.no_grad():
        output = model(rows[:, :64] / 16)
    accuracy = (output.argmax(1) == rows[:, 64]).float().mean().item()
    done = events(run_dir, "done")[0]
    assert accuracy == pytest.approx(done["val_accuracy"], abs=1e-6)
    assert torch.nn.functional.cross_entropy(output, rows[:, 64].long()).item() == pytest.approx(done["val_loss"], rel=1e-4)


@pytest.mark.parametrize("ranks", RANKS)
def test_evaluate_repeats_the_runs_figures(trained, ranks):
    done = events(trained[1], "done")[0]
    figures = {name.removeprefix("val_"): value for name, value in done.items() if name.startswith("val_")}
    assert [*figures][:5] == ["loss", "accuracy", "top5", "f1", "log_loss"]
    expected = "  ".join(f"{name} {value:.4f}" for name, value in figures.items()) + "  (360 samples)\n"
    assert Run(["evaluate", trained[1]], ranks=ranks).out == expected
    run = Run(["evaluate", trained[1], "--input", trained[0] / "test.csv"], ranks=ranks)
    assert run.out == expected, run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.all_tier(
    "ranks and labels are each tried in another pair",
    unless=lambda ranks, labelled: (ranks == 2) == labelled,
)
def test_predict_writes_every_row_once(trained, ranks, labelled, tmp_path):
    folder, run_dir, _ = trained
    rows = (folder / "test.csv").read_text().split()
    (tmp_path / "in.csv").write_text("\n".join(row if labelled else row.rsplit(",", 1)[0] for row in rows))
    predictions = predict(run_dir, tmp_path / "in.csv", ranks=ranks)
    assert [int(p["index"]) for p in predictions] == list(range(360))
    right = np.mean([p["label"] == row.rsplit(",", 1)[1] for p, row in zip(predictions, rows)])
    assert right == pytest.approx(events(run_dir, "done")[0]["val_accuracy"], abs=1e-6)
    assert all(0.1 <= float(p["probability"]) <= 1 for p in predictions)


def test_predict_needs_no_training_files(trained, tmp_path):
    folder, run_dir, _ = trained
    text = (run_dir / "config.pbtxt").read_text().replace(str(folder), "/nowhere")
    (tmp_path / "config.pbtxt").write_text(text)
    (tmp_path / "weights.safetensors").write_bytes(weight_bytes(run_dir))
    run = Run(["predict", tmp_path, "--input", folder / "test.csv", "--output", tmp_path / "out.csv"])
    assert run.status == DONE, run
    run = Run(["evaluate", tmp_path])
    assert run.status == DATA and "/nowhere/train.csv" in run.err, run


def test_the_same_seed_gives_the_same_bits_for_any_number_of_loader_threads(trained, tmp_path):
    weights = []
    for threads in (0, 1, 3):
        run_dir = tmp_path / str(threads)
        words = sets(f"loader.threads={threads}", "epochs=3")
        run = train(trained[0] / "config.pbtxt", run_dir, *words, ranks=RANKS[-1])
        assert run.status == DONE, run
        weights.append(weight_bytes(run_dir))
    assert weights[0] == weights[1] == weights[2]


def test_another_seed_gives_other_weights(trained, tmp_path):
    config = trained[0] / "config.pbtxt"
    for seed in (1, 2):
        train(config, tmp_path / str(seed), *sets(f"seed={seed}", "max_steps=1"))
    assert weight_bytes(tmp_path / "1") != weight_bytes(tmp_path / "2")


@pytest.mark.parametrize("name", ["mnist", "cifar"])
@pytest.mark.all_tier(
    "the reader of CIFAR-10 has unit tests, and the net learns from MNIST's files",
    unless=lambda name: name == "mnist",
)
def test_convnet_learns_mnist_and_cifar10_files(name, tmp_path):
    """Writes the digits with pixels of 0 to 255 in MNIST's format, enlarged to 16x16, and in CIFAR-10's format,
    enlarged to 32x32 in colour."""
    rows = np.loadtxt(DIGITS, delimiter=",", dtype=np.uint8)
    pixels, labels = (rows[:, :64] * 15).reshape(-1, 8, 8), rows[:, 64]
    large = pixels.repeat(2, 1).repeat(2, 2)
    header = np.array([0x803, len(large), 16, 16], ">u4").tobytes()
    (tmp_path / "images").write_bytes(header + large.tobytes())
    (tmp_path / "labels").write_bytes(np.array([0x801, len(labels)], ">u4").tobytes() + labels.tobytes())
    planes = pixels.repeat(4, 1).repeat(4, 2).reshape(-1, 1, 1024).repeat(3, 1).reshape(-1, 3072)
    (tmp_path / "batch.bin").write_bytes(np.concatenate([labels[:, None], planes], 1)[:600].tobytes())

    data = {
        "mnist": 'format: MNIST train: ["images", "labels"] mean: 0.3 std: 0.35',
        "cifar": 'format: CIFAR10 train: "batch.bin" mean: [0.3, 0.3, 0.3] std: [0.3, 0.35, 0.4]',
    }[name]
    config = write_config(
        tmp_path,
        f"""data {{ {data} validation_fraction: 0.2 }}
        model {{ name: "convnet" convnet {{ channels: [8, 16] hidden: 32 }} }}
        optimizer {{ lr: 0.003 clip_norm: 1 }} global_batch: 32 epochs: {3 if name == "mnist" else 6}""",
    )
    run = train(config, tmp_path / name, ranks=RANKS[-1])
    assert run.status == DONE, run
    accuracy = events(tmp_path / name, "done")[0]["val_accuracy"]
    assert accuracy > 0.85
    evaluated = Run(["evaluate", tmp_path / name], ranks=RANKS[-1])
    assert f"accuracy {accuracy:.4f}" in evaluated.out, evaluated
    inputs = ["images"] if name == "mnist" else ["batch.bin"]
    output = tmp_path / f"{name}.csv"
    predicted = Run(["predict", tmp_path / name, "--input", *inputs, "--output", output], ranks=RANKS[-1], cwd=tmp_path)
    assert predicted.status == DONE, predicted
    lines = output.read_text().splitlines()[1:]
    assert np.mean([int(line.split(",")[1]) == label for line, label in zip(lines, labels)]) > 0.85
    assert events(tmp_path / name, "step")[-1]["grad_norm"] > 0


def test_a_model_of_ones_own(tmp_path):
    config = write_config(
        tmp_path,
        f"""{digits_data("validation_fraction: 0.2")}
        model {{ name: "tiny_net" option {{ key: "width" value: "64" }} }} epochs: 20""",
    )
    run = train(config, tmp_path / "run", ranks=RANKS[-1], program=OWN_MODEL)
    assert run.status == DONE, run
    assert events(tmp_path / "run", "done")[0]["val_accuracy"] > 0.9
    assert weights_of(tmp_path / "run")["hidden.weight"].shape == (64, 64)
    run = Run(["evaluate", tmp_path / "run"])
    assert run.status == USAGE and 'unknown model "tiny_net"' in run.err, run


def test_config_prints_every_field_and_a_template(trained, tmp_path):
    run = Run(["config", trained[0] / "config.pbtxt", "--set", "optimizer.lr=0.5"])
    assert run.status == DONE and "lr: 0.5\n" in run.out and "bucket_bytes: 26214400" in run.out
    template = Run(["config", "--template"])
    assert "# Peak learning rate." in template.out
    (tmp_path / "t.pbtxt").write_text(template.out.replace("train: []", f'train: "{DIGITS}"'))
    assert Run(["config", tmp_path / "t.pbtxt"]).status == DONE


def test_version():
    run = Run(["version"])
    assert re.fullmatch(r"lockstep \d+\.\d+\.\d+ \(LibTorch 2\.11\.\d.*, NCCL 2\.28\.9\)\n", run.out), run


def test_help():
    assert "evaluate" in Run(["--help"]).out
    assert "--set" in Run(["train", "--help"]).out


@pytest.mark.parametrize(
    "arguments,status,part",
    [
        ([], USAGE, "name a command"),
        (["trian", "x"], USAGE, 'no command "trian"; did you mean "train"?'),
        (["train"], USAGE, "CONFIG"),
        (["train", "/nowhere.pbtxt"], USAGE, "/nowhere.pbtxt: no config can be read from it: No such file or directory"),
        (["train", "/tmp"], USAGE, "/tmp: no config can be read from it: it is a folder"),
        (["-n", "0", "train", "x"], USAGE, "0"),
        (["-n", "x", "train", "y"], USAGE, "x"),
        (["config"], USAGE, "CONFIG or --template"),
        (["evaluate", "/nowhere"], USAGE, "/nowhere/config.pbtxt"),
        (["bench", "alreduce"], USAGE, 'no command "alreduce"; did you mean "allreduce"?'),
        (["bench", "allreduce"], USAGE, "one rank has nothing to exchange: add -n 2"),
        (["bench", "allreduce", "--dtype", "float23"], USAGE, 'no dtype "float23"; did you mean "float32"?'),
        (["bench", "allreduce", "--bytes", "0"], USAGE, "--bytes"),
        (["bench", "scaling", "/nowhere.pbtxt"], USAGE, "/nowhere.pbtxt"),
        (["flight", "/nowhere"], USAGE, "/nowhere: no flight records here"),
        (["predict", "/nowhere"], USAGE, "--input"),
        (["predict", str(EXAMPLE_FOLDER), "--input", str(DIGITS)], USAGE, "not the config that a run left behind"),
    ],
)
def test_mistakes_are_one_line(arguments, status, part):
    run = Run(arguments)
    assert run.status == status and len(run.error_lines) == 1 and part in run.err, run


def test_predict_mistakes_are_one_line(trained, tmp_path):
    folder, run_dir, _ = trained
    (tmp_path / "narrow.csv").write_text("1,2,3\n")
    for arguments, status, part in (
        (["--input", tmp_path / "narrow.csv"], DATA, "3 columns where 65 are expected"),
        (["--input", "/nowhere.csv"], DATA, "/nowhere.csv"),
        (["--input", folder / "test.csv", "--output", "/nowhere/out.csv"], CHECKPOINT, "/nowhere/out.csv"),
    ):
        for ranks in RANKS:
            run = Run(["predict", run_dir, *arguments], ranks=ranks, cwd=tmp_path)
            assert run.status == status and len(run.error_lines) == 1 and part in run.err, run


@pytest.mark.parametrize("name,share", [("allreduce", 1.0), ("reduce-scatter", 0.5), ("all-gather", 0.5)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.all_tier(
    "other collectives and types are timed and checked by the same code",
    unless=lambda name, dtype: (name, dtype) in (("allreduce", "float32"), ("all-gather", "bfloat16")),
)
def test_bench_times_and_checks_collectives(name, share, dtype):
    """Checks the bandwidths by the definitions of nccl-tests: on two ranks the bus bandwidth of an all-reduce equals
    its algorithm bandwidth, and that of a reduce-scatter or an all-gather is half of its algorithm bandwidth."""
    run = Run(["bench", name, "--json", "--bytes", "1000003", "--dtype", dtype, "--device", DEVICE.lower()], ranks=2)
    assert run.status == DONE, run
    (line,) = map(json.loads, run.out.split("\n")[:-1])
    size = {"float32": 4, "bfloat16": 2}[dtype]
    assert line["bytes"] == -(-1000003 // (2 * size)) * 2 * size
    assert (line["dtype"], line["ranks"], line["gpus"], line["wrong"]) == (dtype, 2, 2 if DEVICE == "CUDA" else 0, 0)
    assert line["busbw_gbs"] == pytest.approx(share * line["algbw_gbs"], abs=0.02)
    assert line["algbw_gbs"] == pytest.approx(line["bytes"] / line["time_us"] / 1e3, rel=0.05, abs=0.02)


def test_bench_prints_a_table_of_sizes():
    run = Run(["bench", "allreduce", "--bytes", "4096", "--device", DEVICE.lower()], ranks=2)
    assert run.status == DONE, run
    assert [line.split()[0] for line in run.out.splitlines()] == ["all-reduce", "bytes", "4096"]


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.all_tier("weak scaling differs from strong scaling only by the batch", unless=lambda weak: not weak)
def test_bench_scaling_tells_what_another_rank_brings(weak, trained):
    config = trained[0] / "config.pbtxt"
    run = Run(["bench", "scaling", config, "--json", "--steps", "20", *(["--weak"] if weak else [])], ranks=2)
    assert run.status == DONE, run
    one, two = map(json.loads, run.out.split("\n")[:-1])
    assert (one["ranks"], two["ranks"], one["speed_up"]) == (1, 2, 1.0)
    assert two["global_batch"] == one["global_batch"] * (2 if weak else 1)
    assert two["speed_up"] == pytest.approx(two["samples_per_s"] / one["samples_per_s"], abs=1e-3)
    assert 0 <= two["exchange_share"] < 1


@pytest.mark.parametrize("precision", ["FP32", "BF16"])
@pytest.mark.all_tier("BF16 has the phases of FP32", unless=lambda precision: precision == "FP32")
def test_bench_step_tells_where_the_time_goes(precision, tmp_path):
    skip_without_gpus(2)
    config = write_config(
        tmp_path,
        'global_batch: 8 accumulation: 2 model { mlp { hidden: 16 } } data { format: SYNTHETIC input_shape: 32 classes: 4 }',
    )
    command = ["bench", "step", config, "--steps", "5", "--set", f"precision={precision}"]
    run = Run(command + ["--json", "--trace", tmp_path / "trace.json"], ranks=2)
    assert run.status == DONE, run
    (line,) = map(json.loads, run.out.split("\n")[:-1])
    assert (line["ranks"], line["batch"], line["accum"], line["precision"]) == (2, 2, 2, precision.lower())
    assert line["params"] == 32 * 16 + 16 + 16 * 4 + 4
    # For each element of the weight matrices and each of a rank's 4 samples, forward has 2 operations and backward has
    # 4.
    flops = 3 * 2 * (32 * 16 + 16 * 4) * 4
    assert line["tflops"] == pytest.approx(flops / line["step_ms"] * 1e-9, abs=1e-3)
    assert set(line["phases_ms"]) == {"forward", "backward", "exchange", "update", "rest"}
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    expect_error(Run(command + ["--trace", tmp_path]), CHECKPOINT, "cannot be written: it is a folder")
    assert "samples_per_s" in Run(command).out


def test_flight_tells_what_ranks_exchanged(tmp_path):
    config = write_config(tmp_path, f"epochs: 1 {digits_data()}")
    assert train(config, tmp_path / "run", ranks=2).status == DONE
    story = Run(["flight", tmp_path / "run", "--last", "40"])
    assert story.status == DONE and "rank 0" in story.out and "rank 1" in story.out, story
    assert "bucket 0: 0.bias, 0.weight" in story.out, story
    assert "verdict" not in story.out and "waits" not in story.out, story


def test_n_inside_mpirun_is_refused(trained):
    run = Run(["train", trained[0] / "config.pbtxt"], ranks=2, env={"OMPI_COMM_WORLD_SIZE": "2"})
    assert run.status == USAGE and "a rank already" in run.err, run


def test_mpirun_missing_is_said(trained, tmp_path):
    run = Run(["train", trained[0] / "config.pbtxt"], ranks=2, env={"PATH": str(tmp_path)})
    assert run.status == USAGE and "mpirun is not installed" in run.err, run


def test_a_live_line_on_a_terminal(trained, tmp_path):
    """Checks the progress line that a training on a terminal redraws; the terminal is a pseudo-terminal."""
    import pty

    pieces = []

    def read(descriptor):
        data = os.read(descriptor, 65536)
        pieces.append(data)
        return data

    arguments = ["train", str(trained[0] / "config.pbtxt"), *sets(f"run_dir={tmp_path}/run", "observe.readings_every_s=0.02")]
    status = pty.spawn([LOCKSTEP, *arguments], read)
    assert status == 0
    text = b"".join(pieces).decode()
    live = r"\repoch \d+/60  step \d+/1380  loss \S+  \S+ samples/s  0m\d\ds left"
    host = r"  CPU \d+ %  \S+ of \S+ GiB" if DEVICE == "CPU" else r"  GPU .*"
    assert re.search(live + host + r"\033\[K", text), text
