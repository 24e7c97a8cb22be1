"""Tests a run's reports on the memory of a real GPU. Compares the parts of the peak with the allocator's own numbers,
and checks that PyTorch can read the memory snapshot and that a deliberate leak and deliberate fragmentation are
reported."""

import pickle

import pytest

from harness import DONE, digits_data, events, faulty_model, needs_gpus, sets, train, write_config
from planted_loss import DIGITS_DATA, FAULTY, POINTS, accounts

MIB = 1 << 20


@pytest.fixture(autouse=True)
def gpu():
    needs_gpus(1)


SYNTHETIC = "format: SYNTHETIC"
TOKENS = f"{SYNTHETIC} input_shape: 256 classes: 5000 synthetic {{ kind: TOKENS samples: 512 }}"
PIXELS = f"{SYNTHETIC} input_shape: [3, 64, 64] classes: 10 synthetic {{ kind: PIXELS samples: 512 }} std: 0.25"
MODELS = {
    "mlp": ('name: "mlp" mlp { hidden: [4096, 4096, 4096] }', DIGITS_DATA),
    "gpt2": ('name: "gpt2" gpt2 { layers: 4 heads: 8 width: 512 }', TOKENS),
    "resnet": ('name: "resnet" resnet { depth: 50 }', PIXELS),
}


def memory_of(folder, model, data, more="", ranks=None, env=None):
    """Trains, and returns the events in the run's log, and the run folder."""
    text = f"""global_batch: 64 max_steps: 24 epochs: 1000 precision: BF16 data {{ {data} }} model {{ {model} }}
        optimizer {{ type: ADAMW lr: 0.0001 }} {more}"""
    run = train(write_config(folder, text), folder / "run", program=FAULTY, ranks=ranks, env=env)
    assert run.status == DONE, run
    return events(folder / "run"), folder / "run"


def reports(log):
    return [event for event in log if event["event"] == "memory"]


@pytest.mark.parametrize("graph", ["true", "false"])
@pytest.mark.parametrize("name", MODELS)
def test_the_owners_add_up_to_the_peak(tmp_path, name, graph):
    log, _ = memory_of(tmp_path, *MODELS[name], f"graph: {graph}")
    report = reports(log)[0]
    print(report)
    start = next(event for event in log if event["event"] == "start")
    owners, peak = report["owners"], report["peak_bytes"]
    assert report["device"] == "cuda" and report["step"] in (1, 2)
    # The allocator itself reports the peak, while the owners' bytes are sums over the allocator's calls.
    assert abs(sum(owners.values()) / peak - 1) < 0.02, report
    assert peak <= report["reserved_bytes"] < report["device_bytes"]
    # A parameter takes 4 bytes (FP32), and its BF16 copy, if there is one, 2 bytes: together at most 1.5 times as much
    # as `weights`. The allocator rounds sizes up.
    weights = 4 * start["parameters"]
    assert weights <= owners["parameters"] < 1.6 * weights + MIB, report
    assert 2 * weights <= owners["moments"] < 2.1 * weights + MIB, report
    assert owners["activations"] > 0, report
    assert owners.get("other", 0) < 0.05 * peak + 4 * MIB, report
    assert all(report["phases"][phase] > weights for phase in ("forward", "backward", "update")), report
    assert max(report["phases"].values()) <= 1.02 * peak
    assert sum(report["blocks"].values()) <= owners["activations"]
    if name != "mlp":  # the MLP's peak is in the update
        assert sum(report["blocks"].values()) > 0.9 * owners["activations"], report
        assert next(iter(report["blocks"])) in ("lm_head", "layer1.0", "layer1.1", "layer1.2"), report


@pytest.mark.parametrize("ddp", ["", "ddp { bucket_bytes: 4194304 }", "ddp { reduce_dtype: BF16 }"])
def test_the_owners_of_a_rank_of_two_add_up(tmp_path, ddp):
    """Checks that the bytes of the owners add up to the peak with two ranks, also with small gradient buckets, whose
    memory NCCL allocates."""
    needs_gpus(2)
    log, _ = memory_of(tmp_path, *MODELS["mlp"], ddp, ranks=2)
    start = next(event for event in log if event["event"] == "start")
    report = reports(log)[0]
    assert abs(sum(report["owners"].values()) / report["peak_bytes"] - 1) < 0.02, report
    # FP32 gradients (4 bytes for each parameter) stay allocated. With reduce_dtype BF16, the gradients' BF16 copies for
    # the all-reduce stay allocated, too (2 bytes).
    gradients = (6 if "BF16" in ddp else 4) * start["parameters"]
    assert gradients <= report["owners"]["gradients"] < 1.05 * gradients + MIB, report


def test_checkpoints_on_the_device_are_named(tmp_path):
    """Checks the bytes of a checkpoint's copies on the device: as many as the weights and both moments have, 12 for
    each parameter."""
    model, data = MODELS["mlp"]
    log, _ = memory_of(tmp_path, model, data, "graph: false checkpoint { every_steps: 4 }")
    start = next(event for event in log if event["event"] == "start")
    last = reports(log)[-1]
    assert 12 * start["parameters"] <= last["owners"]["checkpoint"] < 13 * start["parameters"] + MIB, reports(log)
    assert abs(sum(last["owners"].values()) / last["peak_bytes"] - 1) < 0.02, last


@pytest.mark.parametrize("graph", ["true", "false"])
def test_an_evaluation_that_takes_more_is_named(tmp_path, graph):
    """Checks that an evaluation is reported only if it takes more memory than a step. With a CUDA graph the evaluation
    takes more, because its memory is allocated in addition to the graph's pool. Without a graph, a step takes at least
    as much memory as the evaluation."""
    model, data = MODELS["gpt2"]
    log, _ = memory_of(tmp_path, model, data + " validation_fraction: 0.25", f"graph: {graph}")
    found = reports(log)
    if graph == "false":
        assert len(found) == 1, found
        return
    step, evaluation = found[0], found[-1]
    assert list(evaluation["phases"]) == ["evaluation"], found
    assert evaluation["phases"]["evaluation"] == evaluation["peak_bytes"] > 1.02 * step["peak_bytes"], found
    assert abs(sum(evaluation["owners"].values()) / evaluation["peak_bytes"] - 1) < 0.02, evaluation
    # The evaluation holds logits of 64 samples of 256 tokens and 5000 classes, with at least 2 bytes each (BF16). The
    # graph's pool holds as many logits for a step.
    logits = 64 * 256 * 5000 * 2
    assert evaluation["owners"]["evaluation"] > logits and evaluation["owners"]["graphs"] > logits, evaluation


def test_a_snapshot_that_cannot_be_written(tmp_path):
    model, data = MODELS["mlp"]
    memory_of(tmp_path, model, data)
    (tmp_path / "run" / "memory").write_text("a file where the folder is to be")
    more = sets("observe.memory_snapshot=true", "max_steps=28")
    run = train(tmp_path / "config.pbtxt", tmp_path / "run", *more, program=FAULTY)
    assert run.status == DONE, run
    warnings = [event["reason"] for event in events(tmp_path / "run", "warning")]
    assert len([warning for warning in warnings if "memory/step-26-rank-0.pickle" in warning]) == 1, warnings


def test_an_allocator_that_tells_nothing(tmp_path):
    model, data = MODELS["mlp"]
    env = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    log, run_dir = memory_of(tmp_path, model, data, "graph: false observe { memory_snapshot: true }", env=env)
    assert not reports(log) and not (run_dir / "memory").exists()
    assert any("cudaMallocAsync" in event["reason"] for event in log if event["event"] == "warning"), log


@pytest.mark.parametrize("graph", ["true", "false"])
def test_pytorch_reads_the_snapshot(tmp_path, graph):
    from torch.cuda import _memory_viz

    log, run_dir = memory_of(tmp_path, *MODELS["gpt2"], f"graph: {graph} observe {{ memory_snapshot: true }}")
    path = run_dir / "memory" / "step-2-rank-0.pickle"
    snapshot = pickle.loads(path.read_bytes())
    print(_memory_viz.segsum(snapshot))
    assert "Device 0" in _memory_viz.trace(snapshot)
    assert "<html" in _memory_viz.trace_plot(snapshot) and "<html" in _memory_viz.segment_plot(snapshot)
    segments = [segment for segment in snapshot["segments"] if segment["device"] == 0]
    assert sum(segment["total_size"] for segment in segments) == reports(log)[0]["reserved_bytes"]
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    # The snapshot names the functions that allocated memory in the first two steps.
    allocations = [entry for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
    assert any("at::" in frame["name"] for entry in allocations for frame in entry.get("frames", []))


def leaking(leak_kb):
    return f"""global_batch: 64 max_steps: 6000 epochs: 1000000 log {{ every_steps: 20 }} graph: false
        observe {{ readings_every_s: 0.2 }} optimizer {{ type: SGD lr: 0.0001 }} data {{ {DIGITS_DATA} }}
        model {{ {faulty_model(leak_tensor_kb=leak_kb, rank=-1)} }}"""


@pytest.mark.parametrize("leak_kb", [16, 256, 4096])
def test_tensors_that_are_kept_are_named(tmp_path, leak_kb):
    found = [finding for report in accounts(tmp_path / "run", leaking(leak_kb)) for finding in report["findings"]]
    finding = next(finding for finding in found if finding["rule"] == "device_memory_grows")
    grows = float(finding["words"].split("grow by ")[1].split(" MiB")[0])
    assert abs(grows / (leak_kb / 1024) - 1) < POINTS, finding
    assert "that the forward pass of linear allocates and keeps" in finding["words"], finding
    assert "more steps" in finding["words"], finding


def test_nothing_grows_in_a_healthy_run(tmp_path):
    found = [finding for report in accounts(tmp_path / "run", leaking(0)) for finding in report["findings"]]
    assert not [finding for finding in found if "memory_grows" in finding["rule"]], found


def fragmented(folder, more="", env=None):
    model = faulty_model(fault=10, fits=24)
    text = f"global_batch: 48 max_steps: 4 epochs: 2 {more} {digits_data()} model {{ {model} }}"
    run = train(write_config(folder, text), folder / "run", program=FAULTY, env=env)
    assert run.status == DONE, run
    return run, events(folder / "run", "out_of_memory")


def test_fragmentation_is_named(tmp_path):
    """Checks that fragmentation is named as the cause when the model asks for 512 MiB while about 800 MiB are free, but
    only in blocks of 100 MiB."""
    run, failed = fragmented(tmp_path, "observe { memory_snapshot: true }")
    assert len(failed) == 1, failed
    event = failed[0]
    assert event["fragmented"] and event["requested_bytes"] == 512 * MIB, event
    assert 100 * MIB <= event["largest_usable_bytes"] < 102 * MIB, event
    assert event["free_bytes"] > 512 * MIB > event["device_free_bytes"], event
    assert "the free memory is fragmented" in run.out and "expandable_segments:True" in run.out, run
    snapshot = pickle.loads((tmp_path / "run" / "memory" / "failed-step-1-rank-0.pickle").read_bytes())
    assert [entry for entry in snapshot["device_traces"][0] if entry["action"] == "oom"]


def test_what_the_line_advises_helps(tmp_path):
    _, failed = fragmented(tmp_path, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert not failed, failed
