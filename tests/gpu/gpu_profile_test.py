"""Tests profiles of runs on a real GPU: the times in a profile agree with those of PyTorch's profiler, nearly all time
is assigned to a phase, and a profile does not change the results of the training."""

import gzip
import json
import pathlib

import pytest

from harness import DONE, Run, events, losses_by_step, needs_gpus, sets, train, weight_bytes

PEERS = pathlib.Path(__file__).parent / "peers"
STEPS = sets("log.every_steps=1", "deterministic=true", "precision=BF16", "device=CUDA")
PROFILE = sets("profile.first_step=20", "profile.steps=5", "profile.every=30")


@pytest.fixture(autouse=True)
def gpu():
    needs_gpus(1)


@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
@pytest.mark.parametrize("graph", ["true", "false"])
def test_nearly_all_time_has_a_phase(tmp_path, model, graph):
    config = PEERS / f"{model}.pbtxt"
    run_dir = tmp_path / "run"
    words = [*STEPS, *sets("max_steps=60", f"graph={graph}")]
    run = train(config, run_dir, *words, *PROFILE)
    assert run.status == DONE, run
    assert [e["step"] for e in events(run_dir, "profile")] == [20, 50]
    assert all(e["slower"] == [] for e in events(run_dir, "profile"))
    (rank,) = json.loads((run_dir / "profiles/20/summary.json").read_text())["ranks"]
    print(model, "graph", graph, {k: rank[k] for k in ("step_ms", "busy_share", "attributed_share", "phases_ms")})
    print(Run(["profile", f"{run_dir}@20"]).out)
    assert rank["attributed_share"] >= 0.98
    in_modules = sum(k["ms"] for k in rank["kernels"] if k["module"])
    assert in_modules >= 0.5 * sum(k["ms"] for k in rank["kernels"])
    for phase in ("forward", "backward", "update"):
        assert rank["phases_ms"][phase] > 0.001 * rank["step_ms"], rank["phases_ms"]
    trace = run_dir / "profiles/20/traces/rank_0.pt.trace.json.gz"
    print("trace", trace.stat().st_size)
    assert trace.stat().st_size <= 20e6
    # Prints how many seconds after the last profiled kernel the summary was written.
    data = json.loads(gzip.decompress(trace.read_bytes()))
    end_us = max(e["ts"] + e["dur"] for e in data["traceEvents"] if e.get("cat") == "kernel")
    end = data.get("baseTimeNanoseconds", 0) / 1e9 + end_us / 1e6
    print("seconds until the files", (run_dir / "profiles/20/summary.json").stat().st_mtime - end)
    plain = tmp_path / "plain"
    assert train(config, plain, *words).status == DONE
    assert losses_by_step(run_dir) == losses_by_step(plain)
    assert weight_bytes(run_dir) == weight_bytes(plain)


def steps_of_torch(model):
    """Returns a function that makes one training step of the model named `model` in PyTorch."""
    import torch

    if model == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        net = GPT2LMHeadModel(GPT2Config()).cuda()
        tokens = torch.randint(0, 50257, (4, 1024), device="cuda")
        loss = lambda: net(tokens, labels=tokens).loss  # noqa: E731
    else:
        import timm

        net = timm.create_model("resnet50").cuda()
        images = torch.randn(32, 3, 224, 224, device="cuda")
        loss = lambda: net(images).square().mean()  # noqa: E731
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
def test_the_table_is_that_of_pytorchs_profiler(tmp_path, model):
    import torch

    step = steps_of_torch(model)
    for _ in range(5):
        step()
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)) as profiler:
        for _ in range(4):
            step()
            torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "torch.json"))
    table = Run(["profile", tmp_path / "torch.json", "--json"])
    assert table.status == DONE, table
    (rank,) = json.loads(table.out)["ranks"]
    assert rank["steps"] == 3
    ours = {}
    for kernel in rank["kernels"]:
        ms, calls = ours.get(kernel["name"], (0, 0))
        ours[kernel["name"]] = (ms + kernel["ms"] * 3, calls + kernel["calls"] * 3)
    theirs = {
        a.key: (a.self_device_time_total / 1e3, a.count)
        for a in profiler.key_averages()
        if a.device_type == torch.autograd.DeviceType.CUDA and a.key in ours
    }
    heaviest = sorted(ours, key=lambda name: -ours[name][0])[:10]
    for name in heaviest:
        print(f"{ours[name][0]:10.4f} {theirs[name][0]:10.4f} ms {ours[name][1]:6.0f} {theirs[name][1]:6d} {name[:80]}")
        assert ours[name][0] == pytest.approx(theirs[name][0], rel=0.02)
        assert ours[name][1] == theirs[name][1]
