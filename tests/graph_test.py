"""Compares steps that run as a CUDA graph with the same steps run eagerly: the same samples, random numbers and
results."""


import numpy as np
import pytest

from harness import (
    DEVICE,
    LOCKSTEP,
    digits_data,
    events,
    expect_close_weights,
    faulty_model,
    path_of,
    sets,
    skip_without_gpus,
    trained_losses,
    write_config,
)

FAULTY = path_of("FAULTY")

pytestmark = pytest.mark.skipif(DEVICE != "CUDA", reason="graphs are the GPU's; graph_test_on_gpus runs them")

CSV = digits_data()
TOKENS = "data { format: SYNTHETIC input_shape: 32 classes: 100 synthetic { kind: TOKENS samples: 100 } }"
PIXELS = "format: SYNTHETIC input_shape: [3, 32, 32] classes: 10 synthetic { kind: PIXELS samples: 100 }"
IMAGES = f"data {{ {PIXELS} }}"
AUGMENTED = f"""data {{ {PIXELS}
  augment {{ brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 mixup: 0.2 cutmix: 1 }} }}"""
# Maps the name of a case to texts of the config: (data, model, further fields). The 1797 digits and the 100 samples
# leave a short last batch in each epoch. With dropout, graph and eager steps must draw the same random numbers.
CASES = {
    "mlp": (CSV, "mlp { hidden: [64, 64] batch_norm: true dropout: 0.2 }", "epochs: 3 global_batch: 64"),
    "mlp_fp16": (CSV, "mlp { hidden: [64, 64] dropout: 0.2 }", "epochs: 3 global_batch: 64 precision: FP16"),
    "mlp_accumulated": (CSV, "mlp { hidden: [64, 64] dropout: 0.2 }", "epochs: 3 global_batch: 64 accumulation: 4"),
    "mlp_clipped_averaged": (
        CSV,
        "mlp { hidden: 64 dropout: 0.2 }",
        "epochs: 3 optimizer { clip_norm: 0.5 ema_decay: 0.9 } schedule { type: COSINE warmup_steps: 5 }",
    ),
    "mlp_lamb": (CSV, "mlp { hidden: 64 }", "epochs: 2 optimizer { type: LAMB weight_decay: 0.1 }"),
    "lstm": (CSV, 'name: "lstm" lstm { hidden: 32 steps: 8 }', "epochs: 2"),
    "gpt2": (TOKENS, 'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 64 dropout: 0.1 }', "epochs: 8 global_batch: 16 precision: BF16"),
    "gpt2_checkpointed": (
        TOKENS,
        'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 64 dropout: 0.1 } activation_checkpointing: true',
        "epochs: 8 global_batch: 16 accumulation: 2 precision: BF16",
    ),
    "gpt2_checkpointed_without_dropout": (
        TOKENS,
        'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 64 } activation_checkpointing: true',
        "epochs: 8 global_batch: 16 accumulation: 2 precision: BF16",
    ),
    "vit": (IMAGES, 'name: "vit" vit { patch: 8 layers: 2 heads: 2 width: 32 dropout: 0.1 }', "epochs: 4 global_batch: 16 precision: BF16"),
    "vit_augmented": (AUGMENTED, 'name: "vit" vit { patch: 8 layers: 2 heads: 2 width: 32 }', "epochs: 4 global_batch: 16 accumulation: 2 precision: BF16"),
    "resnet": (IMAGES, 'name: "resnet" resnet { depth: 18 }', "epochs: 4 global_batch: 16"),
}


# These sizes give several buckets, whatever the model's size.
BUCKETS = "ddp { first_bucket_bytes: 64 bucket_bytes: 4096 }"


def losses_of(folder, name, graph, text, ranks, program=LOCKSTEP, shard="false"):
    config = write_config(folder, f"seed: 3 deterministic: true graph: {graph} log {{ every_steps: 1 }} {BUCKETS} {text}")
    shard = sets(f"optimizer.shard={shard}")
    return np.array(trained_losses(config, folder / name, *shard, ranks=ranks, program=program), dtype=float)


@pytest.mark.parametrize("ranks,shard", [(1, "false"), (2, "false"), (2, "true")])
@pytest.mark.parametrize("case", CASES)
def test_a_graph_changes_nothing(case, ranks, shard, tmp_path):
    skip_without_gpus(ranks)
    data, model, more = CASES[case]
    if shard == "true" and "LAMB" in more:
        pytest.skip("refused: LAMB needs whole parameters")
    text = f"{data} model {{ {model} }} {more}"
    eager = losses_of(tmp_path, "eager", "false", text, ranks, shard=shard)
    graph = losses_of(tmp_path, "graph", "true", text, ranks, shard=shard)
    assert not events(tmp_path / "graph", "no_graph")
    np.testing.assert_allclose(graph, eager, rtol=1e-6)
    expect_close_weights(tmp_path / "graph", tmp_path / "eager")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_model_that_cannot_be_captured(ranks, tmp_path):
    skip_without_gpus(ranks)
    text = f'epochs: 2 {CSV} model {{ {faulty_model(waits=1)} }}'
    eager = losses_of(tmp_path, "eager", "false", text, ranks, FAULTY)
    graph = losses_of(tmp_path, "graph", "true", text, ranks, FAULTY)
    (event,) = events(tmp_path / "graph", "no_graph")
    assert "captur" in event["reason"], event
    np.testing.assert_allclose(graph, eager, rtol=1e-6)
