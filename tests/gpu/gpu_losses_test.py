"""Tests on a real GPU that a run's verdict or a finding names the cause of lost time. Each test except the last one
adds one such cause to a run deliberately."""

import pytest

from harness import faulty_model, needs_gpus
from planted_loss import DIGITS_DATA, Plant, accounts, expect_right, mistakes

SEVERITIES = range(3)
OBSERVE = "observe { readings_every_s: 0.2 }"


@pytest.fixture(autouse=True)
def gpu():
    needs_gpus(1)


def config(model, more, batch, steps):
    return f"""global_batch: {batch} max_steps: {steps} epochs: 1000000 log {{ every_steps: 20 }} {OBSERVE}
        optimizer {{ type: SGD lr: 0.0001 }} data {{ {DIGITS_DATA} }} model {{ {model} }} {more}"""


def layers(width, count):
    return f'name: "mlp" mlp {{ hidden: [{", ".join([str(width)] * count)}] }}'


def small_steps(severity):
    """Returns a Plant (planted_loss.py) whose steps have many small kernels, which the host launches one by one."""
    count = [20, 60, 150][severity]
    steps = [2000, 1200, 600][severity]
    return Plant(
        "launching",
        config(layers(128, count), "graph: false", 64, steps),
        config(layers(128, count), "", 64, steps),
        remedy="graph: true",
    )


def waiting_model(severity):
    """Returns a Plant whose model makes the host wait for a number from the GPU in each forward pass."""
    batch = [64, 256, 1024][severity]
    return Plant(
        "launching",
        config(faulty_model(waits=1), "", batch, 6000),
        config(faulty_model(), "", batch, 6000),
        remedy="aten::item",
    )


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("make", [small_steps, waiting_model], ids=lambda make: make.__name__)
def test_a_planted_loss_is_named(tmp_path, make, severity):
    plant = make(severity)

    expect_right(lambda folder: mistakes(plant, folder), tmp_path)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_products_without_tensor_cores_are_named(tmp_path, severity):
    """Checks that FP32 products are found as a cause and BF16 products are not, and that in FP32 an ideal step reaches
    more than 0.3 of the GPU's peak FLOP/s (flops_share). """
    model = layers([2048, 4096, 8192][severity], 4)
    reports = {
        precision: accounts(tmp_path / precision, config(model, f"precision: {precision}", 1024, 600))[-1]
        for precision in ("FP32", "BF16")
    }
    findings = {finding["rule"]: finding for finding in reports["FP32"]["findings"]}
    assert findings["fp32"]["remedy"] == "precision: BF16", reports
    assert "fp32" not in {finding["rule"] for finding in reports["BF16"]["findings"]}, reports
    share = reports["FP32"]["flops_share"]
    gained = 1 - reports["BF16"]["ideal_s"] / reports["FP32"]["ideal_s"]
    print(f"products take {share:.3f} of a step in FP32; BF16 saves {gained:.3f}")
    assert 0.3 < share <= 1


def test_the_model_that_waits_is_named(tmp_path):
    reports = accounts(tmp_path / "run", config(faulty_model(waits=1), "", 64, 6000))
    findings = {finding["rule"]: finding for report in reports for finding in report["findings"]}
    assert "aten::item" in findings["synchronizations"]["words"], reports[-1]


@pytest.mark.parametrize("name", ["graph", "products", "own_model"])
def test_a_healthy_run_gets_no_verdict(tmp_path, name):
    model = {"graph": layers(4096, 8), "products": layers(4096, 4), "own_model": faulty_model()}[name]
    text = config(model, "precision: BF16", {"graph": 1024, "products": 8192, "own_model": 64}[name], 6000)

    def attempt(folder):
        reports = accounts(folder / "run", text)
        print(reports[-1])
        return "\n".join(str(report) for report in reports if report["verdict"] or report["findings"])

    expect_right(attempt, tmp_path)
