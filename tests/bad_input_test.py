"""Tests bad input on two ranks under mpirun: the program prints one error line, exits with the right status, and leaves
no process behind."""

import struct

import pytest

from harness import (
    CHECKPOINT,
    DATA,
    DONE,
    LOCKSTEP,
    USAGE,
    Run,
    digits_data,
    events,
    expect_error,
    faulty_model,
    mpirun,
    path_of,
    processes_of,
    train,
    write_config,
)

FAULTY = path_of("FAULTY")
RANKS = 2


def train_on_two(folder, text, program=LOCKSTEP):
    run = train(write_config(folder, text), folder / "run", ranks=RANKS, program=program)
    assert processes_of(folder) == {}
    return run


GOOD_DATA = digits_data() + "\n"


@pytest.mark.parametrize(
    "content,parts",
    [
        ("", ["data.csv: the file is empty"]),
        ("1,2,0\n1,0\n", ["data.csv:2:", "2 columns where 3 are expected"]),
        ("1,2,0\n1,2,7\n", ["data.csv:2:", "label 7 is out of range"]),
        ("1,2,0\n1,x,1\n", ["data.csv:2:", 'column 2: "x" is no finite number']),
    ],
    ids=["empty_file", "ragged_row", "label_out_of_range", "non_numeric_cell"],
)
@pytest.mark.all_tier(
    "csv_test.cc has these mistakes, and two others show that two ranks print one line",
    unless=lambda content: content and "x" not in content,
)
def test_bad_csv(content, parts, tmp_path):
    (tmp_path / "data.csv").write_text(content)
    run = train_on_two(tmp_path, 'data { train: "data.csv" classes: 3 }')
    expect_error(run, DATA, *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.all_tier("mnist_test.cc has truncated files")
def test_truncated_idx_file(tmp_path):
    (tmp_path / "images").write_bytes(struct.pack(">IIII", 0x803, 5, 8, 8) + bytes(5 * 64 - 1))
    (tmp_path / "labels").write_bytes(struct.pack(">II", 0x801, 5) + bytes(5))
    run = train_on_two(tmp_path, 'data { format: MNIST train: ["images", "labels"] }')
    expect_error(run, DATA, "images", "truncated")


def test_unknown_model(tmp_path):
    run = train_on_two(tmp_path, GOOD_DATA + 'model { name: "mpl" }')
    expect_error(run, USAGE, 'unknown model "mpl"; did you mean "mlp"?')


def test_more_ranks_than_gpus(tmp_path):
    config = write_config(tmp_path, GOOD_DATA)
    run = Run(["train", config, "--set", "device=CUDA"], ranks=RANKS, env={"CUDA_VISIBLE_DEVICES": ""})
    expect_error(run, USAGE, "2 ranks but 0 visible GPUs on this machine")


def test_an_unknown_field_is_pointed_at_before_any_rank_starts(tmp_path):
    run = train_on_two(tmp_path, GOOD_DATA + "optimizer {\n  learning_rate: 3\n}")
    expect_error(run, USAGE, "config.pbtxt:4:", 'Optimizer has no field "learning_rate"')
    assert "mpirun" not in run.err


def test_the_same_config_error_without_our_launcher_is_one_line(tmp_path):
    """Starts mpirun without `lockstep -n`. Every rank then finds the mistake in the config, and only one rank prints
    it."""
    config = write_config(tmp_path, "nonsense: 1")
    run = Run(["train", config], launcher=mpirun(3))
    expect_error(run, USAGE, 'Config has no field "nonsense"')


def test_an_unknown_option_of_a_model(tmp_path):
    run = train_on_two(tmp_path, GOOD_DATA + f"model {{ {faulty_model(fualt=1)} }}", program=FAULTY)
    expect_error(run, USAGE, 'the model "faulty" has no option "fualt"; did you mean "fault"?')


def test_synchronised_batch_norm_without_any(tmp_path):
    run = train_on_two(tmp_path, GOOD_DATA + "ddp { sync_batch_norm: true }")
    expect_error(run, USAGE, 'ddp.sync_batch_norm: the model "mlp" has no lockstep::BatchNorm')


@pytest.mark.parametrize(
    "text,part",
    [
        (GOOD_DATA + 'model { name: "gpt2" }', "model gpt2: the samples are no tokens"),
        (GOOD_DATA + 'model { name: "lstm" lstm { steps: 7 } }', "cannot be cut into 7 time steps"),
        (GOOD_DATA + 'model { name: "resnet" }', "model resnet: inputs of shape [64] are no images"),
        (
            'data { format: SYNTHETIC input_shape: [3, 32, 32] classes: 2 } model { name: "resnet" resnet { depth: 20 } }',
            "model.resnet.depth 20: there are 18, 34, 50 and 101",
        ),
        (
            'data { format: SYNTHETIC input_shape: 8 classes: 9 synthetic { kind: TOKENS } }',
            "model mlp: it takes numbers or pixels, and the samples are tokens",
        ),
        (
            'data { format: SYNTHETIC input_shape: 8 classes: 9 synthetic { kind: TOKENS } } model { name: "gpt2" gpt2 { heads: 5 } }',
            "model.gpt2.width 768 is no multiple of model.gpt2.heads 5",
        ),
    ],
)
@pytest.mark.all_tier(
    "these models refuse samples through the same check as the LSTM and GPT-2",
    unless=lambda part: "lstm" in part or "time steps" in part or "heads" in part,
)
def test_a_model_that_does_not_fit_the_samples(text, part, tmp_path):
    expect_error(train_on_two(tmp_path, text), USAGE, part)


@pytest.mark.all_tier("tokens_test.cc has tokens that are out of range")
def test_a_token_that_is_out_of_range(tmp_path):
    (tmp_path / "text.bin").write_bytes(struct.pack("<5H", 1, 2, 9, 4, 5))
    text = 'data { format: TOKENS train: "text.bin" tokens { length: 2 } classes: 9 shuffle: false }'
    run = train_on_two(tmp_path, text + 'model { name: "gpt2" gpt2 { layers: 1 heads: 1 width: 8 } } global_batch: 2')
    expect_error(run, DATA, "text.bin: token 2 is 9, out of range: data.classes is 9")


def test_a_batch_smaller_than_the_ranks(tmp_path):
    run = train_on_two(tmp_path, GOOD_DATA + "global_batch: 1")
    expect_error(run, USAGE, "global_batch 1 is too small for 2 ranks")


def test_a_loss_that_is_not_finite(tmp_path):
    text = "model { mlp { hidden: 64 } } optimizer { type: SGD lr: 1e30 } log { every_steps: 1 }"
    run = train_on_two(tmp_path, GOOD_DATA + text)
    expect_error(run, USAGE, "the loss is", "lower optimizer.lr")


def test_weights_of_another_model(tmp_path):
    assert train_on_two(tmp_path, GOOD_DATA + "epochs: 1").status == DONE
    (tmp_path / "run").rename(tmp_path / "first")
    run = train_on_two(tmp_path, GOOD_DATA + 'model { mlp { hidden: 3 } } init_from: "first/weights.safetensors"')
    expect_error(run, CHECKPOINT, "weights.safetensors: ", "0.weight has shape [10, 64] where the model has [3, 64]")


def faulty(folder, fault, **options):
    return train_on_two(folder, GOOD_DATA + f"model {{ {faulty_model(fault=fault, **options)} }}", program=FAULTY)


def test_a_parameter_without_gradient_is_named(tmp_path):
    expect_error(faulty(tmp_path, 4, rank=-1), USAGE, "error: no gradient for 1 of 2 parameters (linear.bias)")


def test_a_parameter_without_gradient_may_be_zero(tmp_path):
    text = f"epochs: 1 ddp {{ missing_gradient: ZERO }} model {{ {faulty_model(fault=4, rank=-1)} }}"
    run = train_on_two(tmp_path, GOOD_DATA + text, program=FAULTY)
    assert run.status == DONE, run
    assert events(tmp_path / "run", "done")


def trained_with(folder, **options):
    """Trains the model of tests/faulty_model.cc with these options and without a fault. Returns (the last validation
    loss, the run folder)."""
    folder.mkdir()
    text = f"epochs: 2 {digits_data('validation_fraction: 0.2')} model {{ {faulty_model(**options)} }}"
    run = train_on_two(folder, text, program=FAULTY)
    assert run.status == DONE, run
    return events(folder / "run", "done")[0]["val_loss"], folder / "run"


def test_a_parameter_with_two_names_is_trained_once(tmp_path):
    assert trained_with(tmp_path / "once")[0] == trained_with(tmp_path / "twice", twice=1)[0]


def test_what_is_evaluated_is_what_is_saved(tmp_path):
    """Checks that the saved weights give the validation loss that the run reported. Without synchronisation, each
    rank's BatchNorm has statistics of its own samples, and rank 0's statistics are evaluated and saved."""
    loss, run_dir = trained_with(tmp_path / "norm", norm=1)
    evaluated = Run(["evaluate", run_dir], ranks=RANKS, program=FAULTY)
    assert f"loss {loss:.4f}  " in evaluated.out, evaluated
