"""Tests what a run does when memory runs out: the run makes the same steps in smaller micro-batches, with the same
losses. Also tests activation checkpointing, which needs less memory. The lack of memory is planted
(tests/faulty_model.cc), in the forward or the backward, on one rank or all; the losses must equal those of a run with
enough memory."""

import json

import numpy as np
import pytest

from harness import (
    BUG,
    DEVICE,
    DONE,
    USAGE,
    Run,
    digits_data,
    events,
    expect_close_weights,
    expect_error,
    faulty_model,
    needs_gpus,
    path_of,
    skip_without_gpus,
    step_losses,
    train,
    weights_of,
    write_config,
)

FAULTY = path_of("FAULTY")
FORWARD, BACKWARD = 8, 9


def train_on(folder, name, model, ranks=None, more="", optimizer=""):
    config = write_config(
        folder,
        f"""global_batch: 48 epochs: 2 max_steps: 40 log {{ every_steps: 1 }} {more}
        {digits_data()} model {{ {model} }} optimizer {{ lr: 0.01 clip_norm: 1 {optimizer} }}""",
    )
    return train(config, folder / name, program=FAULTY, ranks=ranks)


def faulty(fault=0, rank=0, at=0, fits=0, **more):
    return faulty_model(fault=fault, rank=rank, at=at, fits=fits, **more)


# (fault; ranks; the rank where memory runs out, or -1 for every rank; the number, counted from 0, of
# the first forward in which, or in whose backward, memory runs out; the largest micro-batch that fits, in samples; the
# accumulation that results)
CASES = [
    (FORWARD, None, 0, 0, 24, 2),
    (FORWARD, None, 0, 7, 6, 8),
    (BACKWARD, None, 0, 7, 24, 2),
    (FORWARD, 2, 1, 0, 12, 2),
    (BACKWARD, 2, 1, 9, 6, 4),
    (FORWARD, 2, -1, 9, 12, 2),
]


@pytest.mark.parametrize("fault,ranks,rank,at,fits,accumulation", CASES)
@pytest.mark.all_tier(
    "other ranks and steps halve their micro-batches in the same way",
    unless=lambda ranks, at, fits: (ranks, at, fits) in ((None, 0, 24), (2, 9, 6)),
)
def test_the_run_goes_on_with_the_same_losses(fault, ranks, rank, at, fits, accumulation, tmp_path):
    skip_without_gpus(ranks)
    # A captured CUDA graph has all the memory that it needs, so memory cannot run out in its replays. Faults after the
    # first three steps are therefore tested without graphs.
    more = "graph: false" if at > 2 else ""
    whole = train_on(tmp_path, "whole", faulty(), ranks, more)
    assert whole.status == DONE, whole
    halved = train_on(tmp_path, "halved", faulty(fault, rank, at, fits), ranks, more)
    assert halved.status == DONE, halved
    np.testing.assert_allclose(step_losses(tmp_path / "halved"), step_losses(tmp_path / "whole"), rtol=1e-6)
    if DEVICE == "CUDA":
        peaks = events(tmp_path / "halved", "memory")[0]["phases"]
        assert all(peaks[phase] > 0 for phase in ("forward", "backward", "update"))
    told = events(tmp_path / "halved", "out_of_memory")
    assert [event["step"] for event in told] == [at + 1] * len(told)
    # The first memory report is of step 1 or 2, and is missing if memory runs out in step 1. The last report follows
    # the change to smaller micro-batches, in the step of the fault or the next one.
    *before, last = [report["step"] for report in events(tmp_path / "halved", "memory")]
    assert last in (at + 1, at + 2) and before in ([], [1], [2]) and bool(before) == (at > 2)
    assert told[-1]["accumulation"] == accumulation and told[-1]["micro_batch"] <= fits
    expect_close_weights(tmp_path / "halved", tmp_path / "whole")


def test_graphs_give_way_to_another_step(tmp_path):
    """Checks that CUDA graphs give up their memory before the micro-batch is halved. After the graph is captured, the
    first step to run eagerly is the epoch's last batch of 21 samples, of which only 11 fit."""
    needs_gpus(1)
    whole = train_on(tmp_path, "whole", faulty())
    short = train_on(tmp_path, "short", faulty(FORWARD, at=2, fits=11))
    assert whole.status == short.status == DONE, short
    np.testing.assert_allclose(step_losses(tmp_path / "short"), step_losses(tmp_path / "whole"), rtol=1e-6)
    told = [event["event"] for event in events(tmp_path / "short") if event.get("step") == 38]
    assert told.index("graphs_gave_way") < told.index("out_of_memory"), told


# With `reduce_dtype: BF16` gradients have 8 significant bits. Their rounding depends on how a batch is divided into
# micro-batches, so the tolerance is larger.
@pytest.mark.parametrize("ddp,optimizer,rtol", [("", "", 1e-6), ("", "shard: true", 1e-6), ("reduce_dtype: BF16", "", 1e-2)])
@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier(
    "each way to exchange gradients goes on with one number of ranks already",
    unless=lambda ddp, optimizer, ranks: ranks == (2 if ddp + optimizer else None) and not ddp,
)
def test_it_goes_on_however_gradients_are_exchanged(ddp, optimizer, rtol, ranks, tmp_path):
    skip_without_gpus(ranks)
    more = f"graph: false ddp {{ first_bucket_bytes: 64 bucket_bytes: 64 {ddp} }}"
    for name, model in (("whole", faulty()), ("halved", faulty(BACKWARD, rank=1 if ranks else 0, at=9, fits=12))):
        run = train_on(tmp_path, name, model, ranks, more, optimizer)
        assert run.status == DONE, run
    np.testing.assert_allclose(step_losses(tmp_path / "halved"), step_losses(tmp_path / "whole"), rtol=rtol)
    assert events(tmp_path / "halved", "out_of_memory")


def test_random_numbers_begin_again_where_the_step_did(tmp_path):
    """Checks that a run that halves its micro-batches in its first step equals a run with `accumulation: 2`, also in
    the numbers that dropout draws."""
    halved = train_on(tmp_path, "halved", faulty(BACKWARD, fits=24, dropout=50))
    assert halved.status == DONE, halved
    meant = train_on(tmp_path, "meant", faulty(dropout=50), more="accumulation: 2")
    assert meant.status == DONE, meant
    np.testing.assert_allclose(step_losses(tmp_path / "halved"), step_losses(tmp_path / "meant"), rtol=1e-6)


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.all_tier("a training halves its first step on every commit", unless=lambda at: at > 0)
def test_bench_step_goes_on(at, tmp_path):
    config = write_config(
        tmp_path,
        f"""global_batch: 48 {"graph: false" if at > 0 else ""} model {{ {faulty(FORWARD, at=at, fits=12)} }}
        data {{ format: SYNTHETIC input_shape: 8 classes: 3 }}""",
    )
    run = Run(["bench", "step", config, "--steps", "5", "--json"], program=FAULTY)
    assert run.status == DONE, run
    line = json.loads(run.out)
    assert (line["accum"], line["batch"], line["global_batch"]) == (4, 12, 48)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("two ranks say what one says", unless=lambda ranks: ranks is None)
def test_bench_step_says_what_it_lacked(ranks, tmp_path):
    """Checks that a field of the JSON line gives the reason if not even one sample fits into memory, or if the model
    throws a library's error."""
    skip_without_gpus(ranks)
    for model, status, failure in (
        (faulty(FORWARD, fits=0), USAGE, {"kind": "out_of_memory", "micro_batch": 1}),
        (faulty(1, at=1), BUG, {"kind": "device"}),
    ):
        data = "data { format: SYNTHETIC input_shape: 8 classes: 3 }"
        config = write_config(tmp_path, f"global_batch: 4 graph: false model {{ {model} }} {data}")
        words = ["bench", "step", config, "--steps", "2", "--warmup", "1"]
        run = Run([*words, "--json"], ranks=ranks, program=FAULTY)
        assert run.status == status and len(run.error_lines) == 1, run
        said = json.loads(run.out)["failure"]
        text = said.pop("text")
        assert said == failure and text in run.err, run
        assert Run(words, ranks=ranks, program=FAULTY).out == ""


def test_ranks_that_exchange_within_a_step_end_with_a_reason(tmp_path):
    """Checks that a run with BatchNorm over all ranks ends if memory runs out on one rank. The step cannot be repeated,
    because the other ranks wait in BatchNorm's collectives."""
    skip_without_gpus(2)
    model = faulty(FORWARD, rank=1, at=5, norm=1)
    run = train_on(tmp_path, "run", model, 2, "graph: false ddp { sync_batch_norm: true }")
    assert run.status == USAGE and "out of memory: take a smaller model" in run.err, run


def test_statistics_follow_the_samples_once(tmp_path):
    """Checks that the forward of an abandoned step leaves no trace in BatchNorm's buffers: 5 steps update them once,
    and the other 35 steps, which have two micro-batches, update them twice."""
    run = train_on(tmp_path, "halved", faulty(BACKWARD, at=5, fits=24, norm=1), more="graph: false")
    assert run.status == DONE, run
    assert weights_of(tmp_path / "halved")["norm.num_batches_tracked"] == 5 + 2 * 35


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank gives the reason that each of two gives", unless=lambda ranks: ranks == 2)
def test_what_never_fits_ends_with_a_reason(ranks, tmp_path):
    skip_without_gpus(ranks)
    run = train_on(tmp_path, "run", faulty(FORWARD, rank=-1), ranks)
    expect_error(run, USAGE, "step 1: out of memory with micro-batches of 1 sample: ")


MODELS = {
    "gpt2": 'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 32 dropout: 0.1 }',
    "gpt2_without_dropout": 'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 32 }',
    "vit": 'name: "vit" vit { patch: 8 layers: 2 heads: 4 width: 32 dropout: 0.1 }',
    "vit_without_dropout": 'name: "vit" vit { patch: 8 layers: 2 heads: 4 width: 32 }',
    "resnet": 'name: "resnet" resnet { depth: 18 }',
}


# Maps a model to the (precision, ranks) with which every commit's tests run it.
IN_COMMITS = {
    "gpt2": ("BF16", 2),
    "gpt2_without_dropout": ("FP32", 2),
    "vit": ("FP32", None),
    "vit_without_dropout": ("BF16", None),
    "resnet": ("FP32", None),
}


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("precision", ["FP32", "BF16"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.all_tier(
    "each model is checkpointed in one precision on one number of ranks already",
    unless=lambda model, precision, ranks: (precision, ranks) == IN_COMMITS[model],
)
def test_checkpointing_changes_no_loss(model, precision, ranks, tmp_path):
    """Checks that losses and weights are the same with activation checkpointing. When a block is recomputed, dropout
    must draw the same numbers again, and running statistics must not be updated a second time."""
    skip_without_gpus(ranks)
    data = (
        "input_shape: 16 classes: 50 synthetic { kind: TOKENS samples: 64 }"
        if model.startswith("gpt2")
        else "input_shape: [3, 32, 32] classes: 10 synthetic { kind: PIXELS samples: 64 } std: 0.25"
    )
    for name, checkpointing in (("plain", "false"), ("checkpointed", "true")):
        config = write_config(
            tmp_path,
            f"""global_batch: 16 accumulation: 2 epochs: 2 precision: {precision} deterministic: true log {{ every_steps: 1 }}
            data {{ format: SYNTHETIC {data} }} optimizer {{ lr: 0.0003 }}
            model {{ {MODELS[model]} activation_checkpointing: {checkpointing} }}""",
        )
        run = train(config, tmp_path / name, ranks=ranks)
        assert run.status == DONE, run
    np.testing.assert_allclose(step_losses(tmp_path / "checkpointed"), step_losses(tmp_path / "plain"), rtol=1e-6)
    expect_close_weights(tmp_path / "checkpointed", tmp_path / "plain")


@pytest.mark.parametrize("optimizer,moments", [("ADAMW", 8), ("SGD", 0)])
@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier(
    "other optimizers and ranks fill the same report",
    unless=lambda optimizer, ranks: (optimizer, ranks) == ("ADAMW", None),
)
def test_the_log_says_what_memory_is_for(ranks, optimizer, moments, tmp_path):
    """Checks which share of the memory the report assigns to each owner. On CPUs the report counts the bytes of
    tensors, which follow from the model's sizes."""
    skip_without_gpus(ranks)
    model = 'name: "mlp" mlp { hidden: [1024] }'
    run = train_on(tmp_path, "run", model, ranks, optimizer=f"type: {optimizer}")
    assert run.status == DONE, run
    (report,) = events(tmp_path / "run", "memory")
    owners = report["owners"]
    assert abs(sum(owners.values()) / report["peak_bytes"] - 1) < 0.02, report
    if DEVICE == "CUDA":  # tests/gpu/gpu_memory_test.py has larger models
        return
    assert (report["step"], report["device"]) == (2, "cpu")
    count = events(tmp_path / "run", "start")[0]["parameters"]
    assert count == (64 + 1) * 1024 + (1024 + 1) * 10
    assert owners["parameters"] == 4 * count, report
    assert owners.get("moments", 0) == moments * count, report
    # Gradients start at multiples of 64 bytes, and four scalars come before them, so they take a little more than 4
    # bytes for each parameter.
    assert 4 * count <= owners["gradients"] < 4 * count + 1024, report
    # Activations and temporaries together include the hidden layer's values for this rank's samples, before or after
    # the activation function.
    samples = 48 // (ranks or 1)
    assert owners["activations"] + owners.get("temporaries", 0) >= 4 * samples * 1024, report
    assert max(report["phases"].values()) == report["peak_bytes"] == sum(owners.values())


def test_the_log_names_the_module_of_activations(tmp_path):
    """Checks that the report assigns activations to the module `linear`: its output before dropout, and the mask or
    output that dropout keeps."""
    text = f"global_batch: 1024 max_steps: 4 {digits_data()} model {{ {faulty(dropout=50)} }}"
    run = train(write_config(tmp_path, text), tmp_path / "run", program=FAULTY)
    assert run.status == DONE, run
    (report,) = events(tmp_path / "run", "memory")
    if DEVICE == "CUDA":  # the peak is not in the forward pass; tests/gpu/gpu_memory_test.py has larger models
        return
    assert 4 * 1024 * 10 <= report["blocks"]["linear"] <= report["owners"]["activations"], report


def test_a_snapshot_for_the_memory_viewer_needs_a_gpu(tmp_path):
    run = train_on(tmp_path, "run", faulty(), more="observe { memory_snapshot: true }")
    assert run.status == DONE, run
    warnings = [event["reason"] for event in events(tmp_path / "run", "warning")]
    assert any("memory_snapshot" in reason for reason in warnings) == (DEVICE != "CUDA"), warnings
    assert (tmp_path / "run" / "memory").exists() == (DEVICE == "CUDA")
