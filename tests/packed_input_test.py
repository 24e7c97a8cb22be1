"""Tests that compressed input which unpacks to much more than its size is refused in one line, and how much memory the
command takes until then."""

import os
import pathlib
import random
import shutil
import struct
import subprocess
import zlib

import pytest

from harness import DATA, DIGITS, DONE, LOCKSTEP, USAGE, digits_data, train, write_config

MIB = 1 << 20
# (bytes of the file, bytes that it unpacks to, the most memory that a command may take). The limit of 256 MiB for files
# of up to 2 MiB leaves the program and its libraries some 700 MiB.
SMALL = (MIB, 1 << 30, 1 << 30)
LARGE = (10 * MIB, 10 << 30, int(2.5e9))
LARGER = (26 * MIB, 26 << 30, int(2.5e9))
UNPACKS = pytest.mark.all_tier("it unpacks a gigabyte for each command")
SIZES = [
    pytest.param(SMALL, id="small"),
    pytest.param(LARGE, id="large", marks=UNPACKS),
    pytest.param(LARGER, id="larger", marks=UNPACKS),
]
TABLE = b"0,1\n"
TRACE = b'{"a":[' + b"0,"
CONTENTS = {"rows": TABLE, "commas": b",,,,", "one-cell": b"0000", "lines": b"\n0\n", "quotes": b'""""'}


def write_gzip(path, beginning, piece, sizes):
    """Writes a gzip file whose text is `beginning` and then repetitions of `piece`. It has many members, which are
    alike, so that it is made at once."""
    packed_bytes, unpacked_bytes, _ = sizes
    member_bytes = 16 * MIB
    text = piece * (member_bytes // len(piece))
    pack = zlib.compressobj(9, wbits=31)
    member = pack.compress(text) + pack.flush()
    count = unpacked_bytes // len(text) + 1
    first = zlib.compressobj(9, wbits=31)
    content = first.compress(beginning) + first.flush() + member * count
    # Zeros behind the last member are padding, which readers skip.
    path.write_bytes(content + bytes(max(0, packed_bytes - len(content))))


def write_zip(path, name, piece, sizes, stated):
    """Writes a zip archive of one file, whose list and header state that it has `stated` bytes. Its blocks are alike."""
    block = zlib.compressobj(9, wbits=-15)
    text = piece * (16 * MIB // len(piece))
    packed_block = block.compress(text) + block.flush(zlib.Z_FULL_FLUSH)
    packed = packed_block * (sizes[1] // len(text) + 1) + b"\x03\x00"
    packed += bytes(max(0, sizes[0] - len(packed)))
    encoded = name.encode()
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(packed), stated, len(encoded), 0)
    local = b"PK\x03\x04" + common + encoded
    entry = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + encoded
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(packed), 0)
    path.write_bytes(local + packed + entry + end)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    config = f'{digits_data()} model {{ name: "mlp" mlp {{ hidden: [4] }} }} epochs: 1'
    run = train(write_config(folder, config), folder / "run")
    assert run.status == DONE, run
    return folder


def measured(words, cwd):
    """Runs a command, and returns (exit status, lines on standard error, greatest resident memory in bytes)."""
    with open(cwd / "err", "w+") as err:
        process = subprocess.Popen([LOCKSTEP, *map(str, words)], cwd=cwd, stdout=subprocess.DEVNULL, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return process.returncode, err.read().splitlines(), usage.ru_maxrss * 1024


def expect_refused(words, cwd, most_bytes, status=DATA, said="unpacked, it has more than the "):
    got, lines, peak = measured(words, cwd)
    assert got == status and len(lines) == 1 and said in lines[0], (got, lines)
    assert peak <= most_bytes, f"{peak / 1e9:.2f} GB"


BENCH = ["bench", "step", "config.pbtxt", "--steps", 1, "--warmup", 1, "--set", "data.train=t.csv.gz"]
COMMANDS = {
    "bench": (BENCH, DATA),
    "new": (["new", "t.csv.gz"], DATA),
    "train": (["train", "config.pbtxt", "--set", "data.train=t.csv.gz", "--set", "run_dir=new"], DATA),
    "validation": (["train", "config.pbtxt", "--set", "data.validation=t.csv.gz", "--set", "run_dir=new"], DATA),
    "evaluate": (["evaluate", "run", "--input", "t.csv.gz"], DATA),
    "predict": (["predict", "run", "--input", "t.csv.gz"], DATA),
    "submission": (["predict", "run", "--input", DIGITS, "--submission", "t.csv.gz"], DATA),
    "profile": (["profile", "t.csv.gz"], USAGE),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.all_tier("it reads as train does", unless=lambda command: command not in ("bench", "validation", "evaluate"))
def test_a_command_refuses_what_fills_the_memory(command, sizes, trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    beginning, piece = (TRACE, b"0,") if command == "profile" else (b"", TABLE)
    write_gzip(tmp_path / "t.csv.gz", beginning, piece, sizes)
    words, status = COMMANDS[command]
    expect_refused(words, tmp_path, sizes[2], status)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.all_tier("the limit is that of unpacking, before the text is read", unless=lambda content: content == "quotes")
def test_whatever_the_text_is(content, tmp_path):
    write_gzip(tmp_path / "t.csv.gz", b"", CONTENTS[content], SMALL)
    expect_refused(["new", "t.csv.gz"], tmp_path, SMALL[2])


@pytest.mark.parametrize("content", ["commas", "one-cell"])
def test_rows_that_are_not_those_of_a_table(content, tmp_path):
    """Gives `new` a text that is just within the limit, and is one row."""
    write_gzip(tmp_path / "t.csv.gz", b"", CONTENTS[content], (MIB, 200 * MIB, 0))
    expect_refused(["new", "t.csv.gz"], tmp_path, SMALL[2], said="t.csv.gz:1: ")


@pytest.mark.parametrize("piece", ["0,", "[],", '{"a":0},', '"",'])
@pytest.mark.all_tier("small values take longer to read, and are counted alike", unless=lambda piece: "a" in piece)
def test_a_trace_of_many_values(piece, tmp_path):
    """Gives `profile` a trace just within the limit, whose values take much more memory than its text."""
    write_gzip(tmp_path / "t.json.gz", b'{"traceEvents":[', piece.encode(), (MIB, 200 * MIB, 0))
    expect_refused(["profile", "t.json.gz"], tmp_path, int(2.5e9), USAGE, "of memory that a file of its size may take")


@pytest.mark.parametrize("stated", [0, 100, 0xFFFFFFFE])
@pytest.mark.parametrize("command", ["new", "predict"])
@pytest.mark.all_tier("no stated length is used", unless=lambda stated, command: (command == "new") == (stated == 0))
def test_an_archive_that_lies(command, stated, trained, tmp_path):
    """Gives commands a zip archive that states another length than its file has."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    write_zip(tmp_path / "t.csv.gz", "t.csv", TABLE, SMALL, stated)
    # No more bytes are unpacked than the archive states, if it states less than the limit.
    said = {0: "the file has no rows", 100: "is damaged"}.get(stated, "unpacked, it has more than the ")
    expect_refused(COMMANDS[command][0], tmp_path, SMALL[2], said=said)


def test_files_of_a_set_share_the_limit(trained, tmp_path):
    """Gives `predict` five files, each of which is within the limit."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    row = pathlib.Path(DIGITS).read_bytes().splitlines()[0] + b"\n"
    for i in range(5):
        write_gzip(tmp_path / f"{i}.csv.gz", b"", row, (0, 100 * MIB, 0))
    words = ["predict", "run", "--input", *(f"{i}.csv.gz" for i in range(5))]
    expect_refused(words, tmp_path, SMALL[2])


@pytest.mark.parametrize("name", ["log.jsonl", "config.pbtxt", "profiles/5/summary.json"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.all_tier("all files of a run are read as plain text", unless=lambda name, sizes: name.startswith("profiles"))
def test_files_of_a_run_are_not_unpacked(name, sizes, trained, tmp_path):
    """Puts a compressed file in the place of a run's own, which `report` and `profile` read. The page is made without
    it, and one line tells of it."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    write_gzip(tmp_path / "run" / name, TRACE, b"0,", sizes)
    status, lines, peak = measured(["report", "run", "--output", "page.html"], tmp_path)
    assert status == DONE and peak <= SMALL[2], peak
    (line,) = lines
    assert line.startswith(f"lockstep: warning: run/{name}: "), line
    if name.startswith("profiles"):
        status, lines, peak = measured(["profile", "run@5"], tmp_path)
        assert status == USAGE and len(lines) == 1 and "summary.json" in lines[0] and peak <= SMALL[2], lines


def test_a_table_that_compresses_well_is_read(trained, tmp_path):
    """Reads a compressed table of one sample, repeated."""
    row = pathlib.Path(DIGITS).read_text().splitlines()[0] + "\n"
    (tmp_path / "same.csv.gz").write_bytes(zlib.compress(row.encode() * 20_000, wbits=31))
    status, lines, _ = measured(["predict", trained / "run", "--input", "same.csv.gz"], tmp_path)
    assert status == DONE and not lines, lines
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 20_001


@pytest.mark.all_tier("it reads a gigabyte")
def test_a_large_file_of_usual_ratio_is_read(tmp_path):
    """Reads 200 MB of a table that unpacks to some five times its size."""
    draw = random.Random(1)
    notes = ["".join(draw.choices("abcd", (20, 4, 2, 1), k=2000)) for _ in range(500)]
    rows = "".join(f"{i % 7},{note},{i % 2}\n" for i, note in enumerate(notes))
    (tmp_path / "t.csv").write_text("x,note,label\n" + rows)
    data = 'data { train: "t.csv" csv { header: true label: "label" ignore: "note" } }'
    config = write_config(tmp_path, f"{data} model {{ mlp {{ hidden: 4 }} }} epochs: 1 global_batch: 100")
    assert train(config, tmp_path / "run").status == DONE
    header, member = (zlib.compress(text.encode(), wbits=31) for text in ("x,note,label\n", rows))
    assert 4 < len(rows) / len(member) < 7
    count = 200 * MIB // len(member)
    (tmp_path / "large.csv.gz").write_bytes(header + member * count)
    status, lines, _ = measured(["evaluate", "run", "--input", "large.csv.gz", "--json"], tmp_path)
    assert status == DONE and not lines, lines
