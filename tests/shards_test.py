"""Tests tar shards end to end: archives that Python's tarfile writes give the same training as the folder of their
images. Also tests WebDataset's naming convention, damaged archives, and the index that is kept between runs."""

import io
import os
import tarfile
import time

import numpy as np
import pytest

from harness import DATA, DONE, USAGE, Run, events, expect_error, predict, sets, skip_without_gpus, train
from labelled_images import CLASSES, photograph, write_images_config

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def jpeg(random, label, side):
    """Returns the bytes of a photograph's JPEG file."""
    file = io.BytesIO()
    photograph(random, label, side).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder with train/, which has a folder of 20 images for each class. Sets an empty cache for indexes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random = np.random.default_rng(2)
    for label, name in enumerate(CLASSES):
        (tmp_path / "train" / name / "deep").mkdir(parents=True)
        for i in range(20):
            path = tmp_path / "train" / name / ("deep" if i % 3 == 0 else "") / f"{i:02}.jpg"
            path.write_bytes(jpeg(random, label, 20 + 3 * i))
    return tmp_path


def members_of(folder):
    return sorted((str(path.relative_to(folder)), path.read_bytes()) for path in folder.rglob("*.jpg"))


def write_tar(path, members, format=tarfile.USTAR_FORMAT):
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_shards(folder, members, shards=3, format=tarfile.USTAR_FORMAT):
    """Writes the members, shuffled, into `shards` tar files, and returns the folder."""
    order = np.random.default_rng(3).permutation(len(members))
    for shard in range(shards):
        write_tar(folder / f"{shard:03}.tar", [members[i] for i in order[shard::shards]], format)
    return folder


def settle(folder, hours=1):
    """Makes the folder's files look `hours` hours old, because an index keeps no entries of files whose time of change
    is just now or in the future. A folder's change time (ctime) cannot be set, so the function waits until that time is
    3 s ago."""
    then = time.time_ns() - hours * 3600 * 10**9
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, ns=(then, then))
    changed = folder.stat().st_ctime
    while time.time() < changed + 3:
        time.sleep(0.05)


def train_on(folder, data, *options, name="run", images="", ranks=None):
    skip_without_gpus(ranks)
    return train(write_images_config(folder, data, images), folder / "runs" / name, *options, ranks=ranks)


def losses(folder, data, name, *options, **more):
    run = train_on(folder, data, *options, name=name, **more)
    assert run.status == DONE, run
    kinds = {"step": "loss", "eval": "val_loss"}
    return [[event[key] for event in events(folder / "runs" / name, kind)] for kind, key in kinds.items()]


def test_the_same_losses_as_from_a_folder(folder):
    members = members_of(folder / "train")
    write_shards(folder / "shards", members)
    held_back = "validation_fraction: 0.2"
    expected = losses(folder, f'train: "train" {held_back}', "folder")
    assert losses(folder, f'train: "shards" {held_back}', "shards") == expected
    files = " ".join(f'train: "shards/{i:03}.tar"' for i in (2, 0, 1))
    for threads in (0, 1, 4):
        assert losses(folder, f"{files} {held_back}", f"list{threads}", *sets(f"loader.threads={threads}")) == expected
    assert losses(folder, f'train: "shards" {held_back}', "encoded", images="cache: ENCODED") == expected
    two_ranks = losses(folder, f'train: "shards" {held_back}', "ranks", ranks=2)
    np.testing.assert_allclose(two_ranks[0], expected[0], rtol=1e-4)


@pytest.mark.parametrize("cache", ["ENCODED", "DECODED"])
@pytest.mark.all_tier(
    "encoded files are kept by the same cache as decoded pixels",
    unless=lambda cache: cache == "DECODED",
)
def test_what_is_kept_changes_no_loss(folder, cache):
    data = 'train: "train" validation: "train"'
    seen = []
    for mib, threads in ((1, 0), (1, 3), (100, 2)):
        images = f"cache: {cache} cache_mib: {mib}"
        seen.append(losses(folder, data, f"{mib}-{threads}", *sets(f"loader.threads={threads}"), images=images))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.all_tier(
    "older formats differ only in how they store long names, and each trains again",
    unless=lambda kind: kind == "pax",
)
def test_names_in_every_format(folder, kind):
    """Tests long names and non-ASCII names, as Python's tarfile writes them: the order of the samples depends on each
    name."""
    random = np.random.default_rng(4)
    longest = 150 if kind == "ustar" else 1000  # bytes of the longest name
    members = []
    for label, name in enumerate(["a", "b" * 90, "\u00e4\u4e2d" * 9]):
        for i in range(12):
            path = name
            while len(path.encode()) < longest * i / 12 - 60:
                path += "/" + "d" * int(random.integers(1, 50))
            members.append((f"{path}/{i}\u00df.jpg", jpeg(random, label, 30)))
    for name, content in members:
        (folder / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "plain" / name).write_bytes(content)
    write_shards(folder / "shards", members, format=FORMATS[kind])
    assert losses(folder, 'train: "shards"', "shards") == losses(folder, 'train: "plain"', "plain")


@pytest.mark.all_tier("it trains six times")
def test_archives_of_the_tar_program(folder):
    for option in ("--format=gnu", "--format=posix", "--format=ustar", "--format=v7", "--format=oldgnu"):
        (folder / option).mkdir()
        assert os.system(f"tar -C '{folder}/train' {option} -cf '{folder}/{option}/0.tar' .") == 0
    seen = [losses(folder, f'train: "{path.name}"', f"run{path.name}") for path in folder.glob("--format=*")]
    assert len(seen) == 5 and all(one == seen[0] for one in seen)
    assert seen[0] == losses(folder, 'train: "train"', "folder")


def test_webdatasets_convention(folder):
    random = np.random.default_rng(5)
    members = []
    for i in range(60):
        contents = {"jpg": jpeg(random, i % 3, 20 + i), "cls": b"%d" % (i % 3), "json": b"{}"}
        sample = [(f"{i:06}.{kind}", content) for kind, content in contents.items()]
        members += sample[:: -1 if i % 2 else 1]
    for shard in range(3):
        write_tar(folder / f"web/{shard}.tar", members[shard * 60 : shard * 60 + 60], FORMATS[list(FORMATS)[shard]])
    run = train_on(folder, 'train: "web" validation: "train"', *sets("epochs=8"))
    assert run.status == DONE, run
    assert events(folder / "runs/run", "done")[0]["val_accuracy"] > 0.95
    assert "classes: 3" in (folder / "runs/run/config.pbtxt").read_text()

    new = [(f"{i}.jpg", jpeg(random, label, 40)) for i, label in enumerate([2, 0, 1])]
    write_tar(folder / "new/0.tar", new)
    assert [int(row["label"]) for row in predict(folder / "runs/run", folder / "new")] == [2, 0, 1]
    run = Run(["evaluate", folder / "runs/run", "--input", folder / "web"])
    assert run.status == DONE and "(60 samples)" in run.out, run

    expect_error(train_on(folder, 'train: "web" classes: 2', name="few"), DATA, "000002.jpg: label 2 is out of range")
    write_tar(folder / "web/3.tar", [("7.jpg", new[0][1])])
    expect_error(train_on(folder, 'train: "web"', name="none"), DATA, "3.tar: 7.jpg: no label")


def test_predicts_shards_of_classes(folder):
    write_shards(folder / "shards", members_of(folder / "train"))
    run = train_on(folder, 'train: "shards"', *sets("epochs=8"))
    assert run.status == DONE, run
    assert 'classes: "blue"' in (folder / "runs/run/config.pbtxt").read_text()
    for files in ([folder / "train"], [folder / "shards"], sorted((folder / "shards").iterdir())):
        run = Run(["evaluate", folder / "runs/run", "--input", *files])
        assert run.status == DONE and "(60 samples)" in run.out and "accuracy 1" in run.out, run


def test_damaged_shards(folder):
    members = members_of(folder / "train")
    shards = write_shards(folder / "shards", members)
    whole = (shards / "001.tar").read_bytes()
    for keep in (len(whole) // 2, 700):
        (shards / "001.tar").write_bytes(whole[:keep])
        expect_error(train_on(folder, 'train: "shards"'), DATA, "shards/001.tar: byte ", f"cut short at {keep} bytes")
    flipped = bytearray(whole)
    flipped[3] ^= 1
    (shards / "001.tar").write_bytes(flipped)
    expect_error(train_on(folder, 'train: "shards"'), DATA, "shards/001.tar: no tar archive")
    # An image in the archive is damaged: with policy SKIP the run goes on without it.
    name, content = members[0]
    write_tar(shards / "001.tar", [(name, content[:100]), *members[1:]])
    expect_error(train_on(folder, 'train: "shards"'), DATA, f"shards/001.tar: {name}: truncated JPEG")
    run = train_on(folder, 'train: "shards" bad_samples { policy: SKIP }', name="skip")
    assert run.status == DONE and f"001.tar: {name}: " in events(folder / "runs/skip", "bad_sample")[0]["reason"], run


def test_names_wrong_configs(folder):
    write_shards(folder / "shards", members_of(folder / "train"))
    expect_error(train_on(folder, 'train: "shards/9.tar"'), USAGE, "data.train: no such file: ", "9.tar")
    two = 'train: "shards/000.tar" train: "train"'
    expect_error(train_on(folder, two), USAGE, "data.train: IMAGES takes one folder")
    expect_error(train_on(folder, 'train: "shards/000.tar" train: "shards/000.tar"'), USAGE, "the same tar file twice")
    (folder / "x.tar.gz").write_bytes(b"\x1f\x8b")
    expect_error(train_on(folder, 'train: "x.tar.gz"'), USAGE, "x.tar.gz: it is neither a folder nor a .tar file")
    (folder / "shards/red").mkdir()
    expect_error(train_on(folder, 'train: "shards"'), DATA, 'tar files and the folder "red"')


@pytest.mark.parametrize("kind", ["folder", "shards"])
@pytest.mark.all_tier(
    "the index of a folder is kept like that of shards, and the test waits for clocks",
    unless=lambda kind: kind == "shards",
)
def test_an_index_is_kept_and_checked(folder, kind):
    members = members_of(folder / "train")
    shards = write_shards(folder / "shards", members)
    index = folder / "cache/lockstep/index"
    data = 'train: "train"' if kind == "folder" else 'train: "shards"'
    changed = folder / "train/red/99.jpg" if kind == "folder" else shards / "9.tar"
    number = iter(range(100))
    settle(folder, hours=-1)
    first = losses(folder, data, f"a{changed.name}{next(number)}")
    assert changed.suffix != ".tar" or not index.exists() or not list(index.iterdir())
    settle(folder / "train")
    settle(shards)
    assert losses(folder, data, f"a{changed.name}{next(number)}", ranks=2)[0]
    (file,) = index.iterdir()
    whole = file.read_bytes()
    kept = file.stat()
    assert losses(folder, data, f"a{changed.name}{next(number)}") == first
    assert file.stat().st_ino == kept.st_ino  # the index was not written again

    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 4
    for content in (whole[:-1], b"", damaged):
        file.write_bytes(content)
        assert losses(folder, data, f"a{changed.name}{next(number)}") == first
        assert file.read_bytes() == whole

    # Adds one more image.
    if changed.suffix == ".tar":
        write_tar(changed, [("red/99.jpg", members[-1][1])])
    else:
        changed.write_bytes(members[-1][1])
    (folder / "expected").mkdir()
    os.system(f"cp -r '{folder}/train/.' '{folder}/expected'")
    (folder / "expected/red/99.jpg").write_bytes(members[-1][1])
    expected = losses(folder, 'train: "expected"', f"b{changed.name}")
    assert expected != first
    assert losses(folder, data, f"a{changed.name}{next(number)}") == expected
    changed.unlink()
    settle(folder)
    assert losses(folder, data, f"a{changed.name}{next(number)}") == first
    os.system(f"rm -r '{folder}/expected' '{index}'")


@pytest.mark.all_tier("it trains five times")
def test_a_cache_that_cannot_be_written(folder):
    settle(folder / "train")
    first = losses(folder, 'train: "train"', "first")
    for number, place in enumerate(["/proc/nowhere", "/dev/null", "relative", str(folder / "config.pbtxt")]):
        os.environ["XDG_CACHE_HOME"] = place  # the fixture restores the variable
        assert losses(folder, 'train: "train"', f"run{number}") == first


def test_bench_loader_reads_shards(folder):
    write_shards(folder / "shards", members_of(folder / "train"))
    settings = sets("device=CPU", "global_batch=7", "loader.threads=3")
    run = Run(["bench", "loader", "--images", folder / "shards", *settings])
    assert run.status == DONE and "samples/s" in run.out, run
