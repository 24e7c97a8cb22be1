"""Tests that binary files are read as what they are, or refused with the reason: token files of other widths, safetensors
files of every dtype, and NumPy's arrays of every type and order. The right answers are those of NumPy and of the library
safetensors. The program data_print answers for all cases of a table in one process.
"""

import gzip
import json
import pathlib
import struct
import sys

import numpy as np
import pytest
import safetensors

from data_answers import answers
from harness import CHECKPOINT, DATA, DONE, LOCKSTEP, USAGE, Run, expect_error, sets, train, write_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402

RANDOM = np.random.default_rng(7)


def words(count, vocabulary):
    """Returns tokens as frequent as the words of a text (Zipf's law), below `vocabulary`."""
    share = 1 / (np.arange(vocabulary) + 3)
    return RANDOM.choice(vocabulary, count, p=share / share.sum())


TEXT = np.frombuffer(pathlib.Path(__file__).read_bytes(), np.uint8)
LETTERS = np.unique(TEXT, return_inverse=True)[1]  # the tokens of a vocabulary of letters
SUMS = np.stack([RANDOM.integers(17, 114, 500), np.full(500, 1), RANDOM.integers(17, 114, 500), np.full(500, 2)], 1).ravel()

# Tokens, which are to be read if they are written with 16 bits.
TOKENS = {
    "gpt2": words(4000, 50257),
    "gpt2_evenly": RANDOM.integers(0, 50257, 4000),
    "all_16_bits": RANDOM.integers(0, 65536, 4000),
    "letters": LETTERS[:5000],
    "bytes": np.concatenate([[256], TEXT[:3000], [256], TEXT[3000:5000]]),
    "small_bpe": words(4000, 1024),
    "three_hundred": RANDOM.integers(0, 300, 3000),
    "large": np.concatenate([words(1999, 50257), [65535]]),
}
# Tokens of 16 bits alone: what they hold is too little, or too strange, for another width.
ONLY_16_BITS = {
    "zeros": np.zeros(1000),
    "one_number": np.full(1000, 300),
    "two_numbers": RANDOM.integers(0, 2, 1000),
    "two_high_numbers": RANDOM.choice([20000, 30000], 1000),
    "dna": RANDOM.integers(0, 4, 1000),
    "rare_events": np.where(RANDOM.random(2000) < 0.01, RANDOM.integers(1, 9, 2000), 0),
    "very_rare_events": np.where(np.arange(100_000) % 9973 == 0, 5, 0),
    "counting": np.arange(3000) % 1000,
    "zero_and_one": np.arange(1000) % 2,
    "one_and_zero": np.arange(1, 1001) % 2,
    "regular_events": np.where(np.arange(4000) % 20 == 0, RANDOM.integers(1, 9, 4000), 0),
    "sums_with_signs": SUMS,
    "tiny": np.array([3, 1, 4, 1, 5]),
    "tiny_with_zeros": np.array([5, 0, 7, 0, 9, 0]),
    "tiny_zeros": np.zeros(5),
    "a_beginning_of_zeros": np.concatenate([np.zeros(200_000), words(3000, 50257)]),
}
# Tokens above 65,535, of larger vocabularies: LLaMA 3, Qwen 2 and Gemma.
ABOVE = {"llama3": words(6000, 128_256), "qwen": words(6000, 151_936), "gemma": words(20_000, 256_000)}
TYPES = {"<u4": "32 bits (", "<i4": "32 bits (", ">u4": "32 bits and are big-endian", "<i8": "64 bits (", "<u8": "64 bits (", ">i8": "64 bits and are big-endian"}
TINY_WIDE = {"dna": RANDOM.integers(0, 4, 200), "tiny": words(30, 50257) + 1, "many_zeros": np.where(RANDOM.random(400) < 0.4, RANDOM.integers(1, 300, 400), 0)}


def llmc(magic, version, count, dtype="<i4"):
    return np.array([magic, version, count] + [0] * 253, dtype).tobytes()


def token_cases():
    """Yields (name, bytes, the tokens, or a part of the error)."""
    for name, tokens in (TOKENS | ONLY_16_BITS).items():
        yield f"{name}-16", tokens.astype("<u2").tobytes(), tokens
        yield f"{name}-16-with-header", llmc(20240520, 1, len(tokens)) + tokens.astype("<u2").tobytes(), tokens
    alternating = np.stack([words(500, 50257), np.zeros(500, int)], 1).ravel()
    yield "alternating-16-with-header", llmc(20240520, 1, 1000) + alternating.astype("<u2").tobytes(), alternating
    yield "alternating-16", alternating.astype("<u2").tobytes(), "32 bits (every second of its 16-bit numbers is 0)"
    for name, tokens in (TOKENS | TINY_WIDE | ABOVE).items():
        for dtype, said in TYPES.items():
            yield f"{name}-{dtype}", tokens.astype(dtype).tobytes(), f"its tokens have {said}"
    for name in ABOVE:
        yield f"{name}-cure", ABOVE[name].astype("<u4").tobytes(), "hold no token above 65535: take a vocabulary of at most 65536"
    # A token above 65,535 that the sample of the file does not see must not be cut to 16 bits by the advice either.
    unseen = np.concatenate([words(60_000, 50257), [70_000], words(140_000, 50257)])
    yield "unseen-above", unseen.astype("<u4").tobytes(), "hold no token above 65535"
    yield "cure", words(500, 50257).astype("<i8").tobytes(), 'write them so (numpy.fromfile(FILE, "<u8").astype("<u2").tofile(NEW))'
    yield "letters-8", LETTERS[:5000].astype("u1").tobytes(), "its tokens have 8 bits, or it is a text"
    yield "a-text", TEXT[:5000].tobytes(), "`lockstep prepare tokens` makes tokens of a text"
    for name in ("letters", "bytes", "small_bpe"):
        yield f"{name}-big-endian", TOKENS[name].astype(">u2").tobytes(), "its tokens are big-endian"
    some = words(300, 50257)
    wide = some.astype("<u4").tobytes()
    for count, data, said in ((300, wide, "32 bits (llm.c's magic number 20240801, version 7)"),
                              (900, some[:100].astype("<u4").tobytes() * 9, "offset=1024"),
                              (6000, ABOVE["llama3"].astype("<u4").tobytes(), "hold no token above 65535")):
        yield f"llama-{count}", llmc(20240801, 7, count) + data, said
    yield "llama-version-8", llmc(20240801, 8, 300) + wide, "magic number 20240801, version 8"
    yield "llama-cut", llmc(20240801, 7, 300)[:600], "magic number 20240801"
    yield "header-32", llmc(20240520, 1, 300) + wide, "its tokens have 32 bits, as its header and its size say"
    yield "header-64", llmc(20240520, 1, 300) + some.astype("<u8").tobytes(), "its tokens have 64 bits, as its header"
    yield "header-8", llmc(20240520, 1, 300) + TEXT[:300].tobytes(), "its tokens have 8 bits, as its header"
    yield "header-2", llmc(20240520, 2, 300) + some.astype("<u2").tobytes(), "version 2 of llm.c's format; 1 is known"
    yield "header-cut", llmc(20240520, 1, 300)[:600], "fewer than llm.c's header has"
    yield "header-big-endian", llmc(20240520, 1, 300, ">i4") + some.astype(">u2").tobytes(), "big-endian"
    yield "tokens-cut", llmc(20240520, 1, 300) + some.astype("<u2").tobytes()[:-2], "598 bytes of tokens where 600 are expected"
    yield "npy", b"\x93NUMPY\x01\x00" + some.astype("<u2").tobytes(), "a .npy array"
    yield "gzip", gzip.compress(some.astype("<u2").tobytes()), "compressed with gzip"
    yield "zip", b"PK\x03\x04" + some.astype("<u2").tobytes(), "a zip archive"
    yield "zstd", b"\x28\xb5\x2f\xfd" + some.astype("<u2").tobytes(), "compressed with zstd"
    yield "parquet", b"PAR1" + some.astype("<u2").tobytes(), "a Parquet file"
    yield "megatron", b"MMIDIDX\0\0" + some.astype("<u2").tobytes() + b"\0", "Megatron's index"


TOKEN_CASES = {name: (content, expected) for name, content, expected in token_cases()}


@pytest.fixture(scope="module")
def token_answers(tmp_path_factory):
    top = tmp_path_factory.mktemp("tokens")
    requests = []
    for i, (content, _) in enumerate(TOKEN_CASES.values()):
        (top / f"{i}.bin").write_bytes(content)
        requests.append({"kind": "tokens", "files": [str(top / f"{i}.bin")], "length": 1})
    return dict(zip(TOKEN_CASES, answers(requests, top), strict=True))


@pytest.mark.parametrize("case", TOKEN_CASES)
def test_tokens(token_answers, case):
    answer, expected = token_answers[case], TOKEN_CASES[case][1]
    if isinstance(expected, str):
        assert answer.get("status") == DATA and expected in answer["error"] and ".bin: " in answer["error"], answer
        assert "\n" not in answer["error"]
    else:
        assert answer.get("tokens") == expected[:-1].tolist(), answer.get("error")


def test_the_advice_about_tokens_helps(tmp_path):
    """Follows the advice of the error about 32 bits, and trains."""
    words(3000, 300).astype("<u4").tofile(tmp_path / "train.bin")
    config = write_config(tmp_path, """global_batch: 4 epochs: 1 data { format: TOKENS train: "train.bin" classes: 300 tokens { length: 32 } }
        model { name: "gpt2" gpt2 { layers: 1 heads: 1 width: 8 } }""")
    run = train(config, tmp_path / "run")
    expect_error(run, DATA, "train.bin: its tokens have 32 bits", "if they do have 16 bits, put llm.c's header before them")
    expect_error(Run(["new", "train.bin"], cwd=tmp_path), DATA, "train.bin: its tokens have 32 bits")
    advice = run.error_lines[0].split("(numpy.")[1].split("; if")[0].rstrip(")") + ")"
    eval("np." + advice, {"np": np, "FILE": tmp_path / "train.bin", "NEW": tmp_path / "new.bin"})
    assert train(config, tmp_path / "run", *sets(f"data.train={tmp_path / 'new.bin'}")).status == DONE


# Files of safetensors: the header, and what is said of it ("": it is read).
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "I32": 32, "I64": 64, "F16": 16, "BF16": 16, "F32": 32, "F64": 64}
UNREAD_BITS = {"U16": 16, "U32": 32, "U64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
               "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}


def tensor(dtype, bits, **more):
    return {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, bits]} | more  # 8 numbers


F32 = tensor("F32", 32)
HEADERS = {
    **{dtype: ({"a": tensor(dtype, bits)}, "") for dtype, bits in BITS.items()},
    **{dtype: ({"a": tensor(dtype, bits)}, f"a has the dtype {dtype}, which is not read: convert it") for dtype, bits in UNREAD_BITS.items()},
    "metadata": ({"__metadata__": {"format": "pt"}, "a": F32}, ""),
    "metadata_empty": ({"__metadata__": {}, "a": F32}, ""),
    "metadata_null": ({"__metadata__": None, "a": F32}, ""),
    "metadata_null_at_the_end": ({"a": F32, "__metadata__": None}, ""),
    "metadata_of_null": ({"__metadata__": {"format": None}, "a": F32}, 'damaged safetensors header at "__metadata__"'),
    "metadata_of_numbers": ({"__metadata__": {"step": 1}, "a": F32}, 'damaged safetensors header at "__metadata__"'),
    "metadata_list": ({"__metadata__": [], "a": F32}, 'damaged safetensors header at "__metadata__"'),
    "another_field": ({"a": F32 | {"extra": 1}}, ""),
    "no_dtype": ({"a": tensor("G7", 32)}, "damaged safetensors header at \"a\": unknown dtype G7"),
    "small_letters": ({"a": tensor("f32", 32)}, "unknown dtype f32"),
    "too_wide": ({"a": tensor("C128", 128)}, "unknown dtype C128"),
    "dtype_is_a_number": ({"a": tensor(32, 32)}, "damaged safetensors header at \"a\""),
}


@pytest.fixture(scope="module")
def tensor_answers(tmp_path_factory):
    top = tmp_path_factory.mktemp("safetensors")
    requests = []
    for case, (header, _) in HEADERS.items():
        text = json.dumps(header).encode()
        size = header["a"]["data_offsets"][1] if "a" in header else 0
        (top / f"{case}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
        requests.append({"kind": "safetensors", "files": [str(top / f"{case}.safetensors")]})
    return top, dict(zip(HEADERS, answers(requests, top), strict=True))


@pytest.mark.parametrize("case", HEADERS)
def test_safetensors(tensor_answers, case):
    top, found = tensor_answers
    header, said = HEADERS[case]
    is_sound = True  # for the library
    try:
        with safetensors.safe_open(top / f"{case}.safetensors", "np") as file:
            assert file.get_slice("a").get_dtype() == header["a"]["dtype"]
            metadata = file.metadata() or {}
    except safetensors.SafetensorError:
        is_sound = False
    if said:
        assert found[case].get("status") == CHECKPOINT and said in found[case]["error"], found[case]
        assert ("damaged" in found[case]["error"]) == (not is_sound)
    else:
        assert is_sound and found[case].get("metadata") == metadata and found[case]["tensors"] == {"a": [0] * 8}, found[case]


# Arrays. Each type is read in either byte order and in C's and Fortran's order.
ARRAY_TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
SHAPES = [(6, 4), (5, 3, 4), (4, 2, 3, 5)]
INPUTS = {}  # the arrays of {case: array}, each of which the reader must give as NumPy has it
for dtype in ARRAY_TYPES:
    for shape in SHAPES:
        numbers = RANDOM.integers(0, 2 if dtype == "?" else 100, shape)
        for order in "CF":
            for ends in "<>":
                name = f"{ends}{dtype}-{len(shape)}-{order}"
                INPUTS[name] = np.asarray(numbers, order=order).astype(dtype if dtype == "?" else ends + dtype, order=order)
INPUTS["columns_of_a_table"] = np.asfortranarray(RANDOM.normal(size=(9, 5)))
INPUTS["a_transposed_view"] = RANDOM.normal(size=(5, 9)).T
INPUTS["one_column"] = np.asfortranarray(RANDOM.normal(size=(9, 1)))

Y = np.array([0, 1, 2, 1, 0, 2])
BIG = 2.0**53
# Labels: {case: (array, task, what is said; "": the targets are the array's numbers)}
TARGETS = {
    **{f"labels-{dtype}": (Y.astype(dtype), "CLASSIFICATION", "") for dtype in ("f2", "f4", "f8", ">f4", ">f8", ">i8", ">i4", ">u2", "u1", "i1", "u8")},
    "labels-bool": (Y > 0, "CLASSIFICATION", ""),
    "labels-column": (Y.astype("f8")[:, None], "CLASSIFICATION", ""),
    "labels-row-of-columns": (np.asfortranarray(Y.astype("f4")[:, None]), "CLASSIFICATION", ""),
    "labels-zero-and-minus-zero": (np.array([0.0, -0.0, 1, 0, 1, 1]), "CLASSIFICATION", ""),
    "labels-half": (Y + 0.5, "CLASSIFICATION", "sample 0: label 0.5 is no integer: labels count the classes from 0"),
    "labels-nearly": (np.where(Y == 2, 1.9999999, Y), "CLASSIFICATION", "sample 2: label 1.9999999 is no integer"),
    "labels-nan": (np.where(Y == 2, np.nan, Y), "CLASSIFICATION", "sample 2: label nan is no integer"),
    "labels-infinite": (np.where(Y == 2, np.inf, Y), "CLASSIFICATION", "sample 2: label inf is no integer"),
    "labels-huge": (np.where(Y == 2, 2 * BIG, Y), "CLASSIFICATION", "sample 2: label "),
    "labels-negative": (np.where(Y == 2, -1.0, Y), "CLASSIFICATION", "sample 2: label -1 is out of range"),
    "labels-one-hot": (np.eye(3)[Y], "CLASSIFICATION", "labels are one integer for each sample, not an array of [6, 3]: of a column for each class take numpy.argmax(labels, 1)"),
    "labels-few": (Y[:5].astype("f8"), "CLASSIFICATION", "5 targets for the 6 inputs"),
    "labels-text": (np.array(list("abcabc")), "CLASSIFICATION", "numbers of type <U1: known are floats, integers and booleans of up to 64 bits"),
    "labels-complex": (Y.astype("c16"), "CLASSIFICATION", "numbers of type <c16"),
    "labels-long-double": (Y.astype("g"), "CLASSIFICATION", "numbers of type "),
    "labels-dates": (Y.astype("M8[s]"), "CLASSIFICATION", "numbers of type <M8[s]"),
    "several-F": (np.asfortranarray(np.eye(3)[Y]), "MULTI_LABEL", ""),
    "several->i2": (np.eye(3, dtype=">i2")[Y], "MULTI_LABEL", ""),
    "numbers-F": (np.asfortranarray(RANDOM.normal(size=(6, 3)).astype("f4")), "REGRESSION", ""),
    "numbers->f8": (RANDOM.integers(-9, 9, (6, 2)).astype(">f8"), "REGRESSION", ""),
}
MASKS = RANDOM.integers(0, 3, (6, 4, 5))
MASKS[0, 0, 0], MASKS[1, 2, 3] = 255, 2
for dtype in ("u1", "f4", "f8", ">i4", ">f8", "i8"):
    for order in "CF":
        TARGETS[f"masks-{dtype}-{order}"] = (MASKS.astype(dtype, order=order), "SEGMENTATION", "")
TARGETS["masks-half"] = (np.where(np.arange(120).reshape(6, 4, 5) == 33, 0.5, MASKS), "SEGMENTATION", "sample 1, row 2, column 3: 0.5 is no integer, as classes are")


def saved(path, array):
    np.save(path, array)
    return str(path)


@pytest.fixture(scope="module")
def array_answers(tmp_path_factory):
    """Returns the answers for INPUTS, for TARGETS, and for INPUTS as tokens."""
    top = tmp_path_factory.mktemp("arrays")
    x = saved(top / "x.npy", np.zeros((6, 2), "f4"))
    images = saved(top / "images.npy", np.zeros((6, 1, 4, 5), "f4"))
    files = {case: saved(top / f"{i}.npy", array) for i, (case, array) in enumerate(INPUTS.items())}
    requests = [{"kind": "npy", "files": [path]} for path in files.values()]
    requests += [{"kind": "npy", "files": [path], "dtype": "long"} for path in files.values()]
    for i, (array, task, _) in enumerate(TARGETS.values()):
        path = saved(top / f"y{i}.npy", array)
        requests.append({"kind": "npy", "files": [images if task == "SEGMENTATION" else x, path], "task": task})
    found = answers(requests, top)
    count = len(INPUTS)
    return (dict(zip(INPUTS, found[:count])), dict(zip(TARGETS, found[2 * count :], strict=True)), dict(zip(INPUTS, found[count : 2 * count])))


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(array_answers, case):
    inputs, _, tokens = array_answers
    array = INPUTS[case]
    expected = array.astype("f4")
    assert inputs[case].get("inputs") == expected.ravel().tolist(), inputs[case].get("error")
    assert inputs[case]["shape"] == list(array.shape[1:])
    # As tokens: integers of two or three dimensions.
    if array.ndim == 4:
        assert "TEXTS are integers of [samples, tokens]" in tokens[case]["error"]
    elif (array == np.floor(array.astype("f8"))).all():
        assert tokens[case].get("inputs") == array.astype("i8").ravel().tolist(), tokens[case].get("error")
    else:
        first = array.ravel()[:array[0].size]
        bad = first[first != np.floor(first)][0]
        assert f"sample 0: {bad!r}".replace("np.float64(", "").rstrip(")") in tokens[case]["error"], tokens[case]


@pytest.mark.parametrize("case", TARGETS)
def test_targets(array_answers, case):
    answer = array_answers[1][case]
    array, task, said = TARGETS[case]
    if said:
        assert answer.get("status") == DATA and said in answer["error"], answer
    else:
        assert answer.get("targets") == array.astype("f4").ravel().tolist(), answer.get("error")
        has_classes = task in ("CLASSIFICATION", "SEGMENTATION")
        assert answer["classes"] == (int(array[array != 255].max()) + 1 if has_classes else array.shape[1])


def test_arrays_as_numpy_has_them(tmp_path, monkeypatch):
    """Checks that Run.predict takes arrays of each order, and that an error speaks of the array and not of the file that
    the package wrote. Trains on float labels and on inputs in Fortran's order, as the files of training."""
    monkeypatch.setenv("LOCKSTEP", LOCKSTEP)
    x = RANDOM.normal(size=(80, 4))
    np.save(tmp_path / "x.npy", np.asfortranarray(x.astype(">f8")))
    np.save(tmp_path / "y.npy", (x[:, 0] > 0).astype("f8"))
    config = write_config(tmp_path, 'global_batch: 8 epochs: 4 data { format: NPY train: "x.npy" train: "y.npy" }')
    assert train(config, tmp_path / "run").status == DONE
    new = Run(["new", ".", "--output", "new.pbtxt"], cwd=tmp_path)
    assert new.status == DONE and "80 samples of [4], 2 classes" in new.out, new
    run = lockstep.Run(tmp_path / "run")
    expected = run.predict(tmp_path / "x.npy")
    views = {
        "Fortran's order": np.asfortranarray(x),
        "big-endian": x.astype(">f8"),
        "both": np.asfortranarray(x.astype(">f8")),
        "a view": np.repeat(x, 2, axis=0)[::2],
    }
    for name, array in views.items():
        assert run.predict(array) == expected, name
    for wrong, part, status in (
        (x.astype(object), "the array has the dtype object: give floats, integers or booleans", USAGE),
        (x.astype("g"), f"the array has the dtype {np.dtype('g')}: give floats", USAGE),
        (x[:, :2], "the array: ", DATA),
    ):
        with pytest.raises(lockstep.LockstepError) as caught:
            run.predict(wrong)
        assert part in str(caught.value) and "inputs.npy" not in str(caught.value), caught.value
        assert caught.value.status == status, caught.value
