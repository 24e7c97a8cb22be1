"""Tests `lockstep prepare`: images are compared with Pillow, shards with tarfile, and tokens with the tokenizers
package. Also tests runs that are killed, run out of disk space, or get wrong input."""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import tarfile

import numpy as np
import pytest
from PIL import Image, ImageOps

from harness import DATA, DONE, LOCKSTEP, USAGE, Run, expect_error, train, trained_losses, write_config
from labelled_images import turned_by

END = "<|endoftext|>"


def prepare(*arguments, **options):
    return Run(["prepare", *arguments], **options)


def contents(folder):
    """Returns the files below a folder as {path: bytes}."""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def photograph(width, height, seed):
    """Returns an image of colour waves with a little noise."""
    draw = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    waves = [np.sin(x * draw.uniform(0.01, 0.2) + y * draw.uniform(0.01, 0.2) + c) for c in range(3)]
    pixels = 128 + 90 * np.stack(waves, axis=2) + draw.normal(0, 5, (height, width, 1))
    return Image.fromarray(pixels.clip(0, 255).astype("u1"))


def write_photographs(folder, count, side=120):
    """Writes `count` image files into three class folders: every seventh as PNG, the others as JPEG."""
    for i in range(count):
        path = folder / f"class{i % 3}" / ("deep" if i % 2 else "") / f"{i:04}.{'png' if i % 7 == 0 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(side + i % 50, side + i % 31, i).save(path)


# Tests of `prepare images`.


def target_of(name):
    return re.sub(r"\.(png|webp|bmp)$", ".jpg", name)


def test_resizes_as_pillow(tmp_path):
    sizes = [(640, 480), (333, 500), (257, 256), (1000, 301), (256, 256), (200, 700), (90, 50)]
    kinds = {"rgb.jpg": {}, "fine.jpg": {"subsampling": 0, "quality": 98}, "progressive.jpeg": {"progressive": True}}
    for i, (width, height) in enumerate(sizes):
        folder = tmp_path / f"src/{width}x{height}"
        folder.mkdir(parents=True)
        image = photograph(width, height, i)
        for name, options in kinds.items():
            image.save(folder / name, **options)
        image.save(folder / "rgb_.png")
        image.convert("L").save(folder / "grey.png")
        image.convert("RGBA").save(folder / "rgba.png")
        image.save(folder / "lossless.webp", lossless=True)
        image.save(folder / "bitmap.bmp")
    run = prepare("images", tmp_path / "src", tmp_path / "dst", "--size", 256)
    assert run.status == DONE, run
    sources = contents(tmp_path / "src")
    results = contents(tmp_path / "dst")
    assert set(results) == {target_of(name) for name in sources}
    for name, source in sources.items():
        image = Image.open(tmp_path / "src" / name).convert("RGB")
        target = tmp_path / "dst" / target_of(name)
        scale = min(image.size)
        if scale <= 256:
            assert target_of(name) != name or target.read_bytes() == source
            expected = image
        else:
            expected = image.resize([side * 256 // scale for side in image.size], Image.BILINEAR)
        result = Image.open(target)
        assert result.format == "JPEG" and result.size == expected.size
        difference = np.abs(np.asarray(result.convert("RGB"), "f4") - np.asarray(expected, "f4"))
        assert difference.mean() < 4, name
        # JPEG compression changes pixels. The limit is one grey level more than the mean change when Pillow saves the
        # expected pixels as JPEG.
        expected.save(tmp_path / "twin.jpg", quality=90)
        twin = np.asarray(Image.open(tmp_path / "twin.jpg"), "f4")
        assert difference.mean() < np.abs(twin - np.asarray(expected, "f4")).mean() + 1, name


def test_quality_and_threads(tmp_path):
    write_photographs(tmp_path / "src", 30)
    bytes_of = {}
    for quality, threads in ((90, 1), (90, 3), (50, 2)):
        destination = tmp_path / f"{quality}/{threads}"  # the folder `quality` does not exist yet
        options = ["--size", 64, "--quality", quality, "--threads", threads]
        run = prepare("images", tmp_path / "src", destination, *options)
        assert run.status == DONE, run
        bytes_of[quality, threads] = contents(destination)
    assert bytes_of[90, 1] == bytes_of[90, 3]
    assert sum(map(len, bytes_of[50, 2].values())) < sum(map(len, bytes_of[90, 1].values()))


def test_bad_images(tmp_path):
    write_photographs(tmp_path / "src", 20)
    bad = tmp_path / "src/class1/0001.jpg"
    bad.parent.mkdir(exist_ok=True)
    bad.write_bytes((tmp_path / "src/class2/0002.jpg").read_bytes()[:500])
    command = ["images", tmp_path / "src", tmp_path / "dst", "--size", 64]
    expect_error(prepare(*command), DATA, f"{bad}: truncated JPEG file")
    # With --bad skip the same command resumes and leaves out the bad image.
    run = prepare(*command, "--bad", "skip")
    assert run.status == DONE and "1 skipped" in run.out, run
    assert (tmp_path / "dst/skipped.txt").read_text().startswith("class1/0001.jpg\t")
    assert len(contents(tmp_path / "dst")) == 21
    # The prepared folder can be trained on.
    data = 'format: IMAGES train: "dst" validation_fraction: 0.2 images { size: 16 } mean: 0.5'
    config = write_config(tmp_path, f'epochs: 1 global_batch: 4 data {{ {data} }} model {{ name: "mlp" }}')
    assert train(config, tmp_path / "run").status == DONE


@pytest.mark.parametrize("size", [20, 64])
def test_pictures_that_are_turned(tmp_path, size):
    """Checks that pictures are turned as Pillow turns them, both if they are resized and if they are small enough to
    keep their size."""
    (tmp_path / "src").mkdir()
    picture = photograph(48, 30, 1)
    for value in range(1, 9):
        name = f"{value}.{'jpg' if value % 2 else 'png'}"
        picture.save(tmp_path / "src" / name, exif=turned_by(value), quality=98)
    command = ["images", tmp_path / "src", tmp_path / "dst", "--size", size, "--quality", 98, "--exif-orientation"]
    assert prepare(*command).status == DONE
    assert len(contents(tmp_path / "dst")) == 8
    for source in sorted((tmp_path / "src").iterdir()):
        expected = ImageOps.exif_transpose(Image.open(source)).convert("RGB")
        if size < 30:
            expected = expected.resize([side * size // 30 for side in expected.size], Image.BILINEAR)
        result = Image.open(tmp_path / f"dst/{source.stem}.jpg")
        assert result.size == expected.size and result.getexif().get(0x0112, 1) == 1
        assert np.abs(np.asarray(result, "f4") - np.asarray(expected, "f4")).mean() < 4, source.name


@pytest.mark.parametrize("command", [["images", "--size", 64], ["shards"]])
def test_what_is_no_image(tmp_path, command):
    """Checks that files that are not supported images are left out with a message, and that a link is an error if it
    has the name of an image but leads to another kind of file."""
    write_photographs(tmp_path / "src", 10)
    (tmp_path / "src/class1/notes.txt").write_text("no image")
    (tmp_path / "src/class1/a.tiff").write_bytes(b"II*\0")
    run = prepare(command[0], tmp_path / "src", tmp_path / "dst", *command[1:])
    assert run.status == DONE, run
    assert "class1/a.tiff is left out: not JPEG, PNG, WebP or BMP: convert" in run.err and "class1/notes.txt is left out" in run.err
    (tmp_path / "src/class1/b.jpg").symlink_to("/etc/passwd")
    run = prepare(command[0], tmp_path / "src", tmp_path / "dst2", *command[1:])
    expect_error(run, DATA, "class1/b.jpg: a link to a file that is not JPEG, PNG, WebP or BMP: remove it")


# Tests of `prepare shards`.


def test_shards_as_tarfile_reads_them(tmp_path):
    write_photographs(tmp_path / "src", 60)
    for name in ("n" * 90, "n" * 200, "ä" * 60, "very/" * 40 + "deep"):
        path = tmp_path / "src/odd" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "src/class1/deep/0001.jpg", path)
    (tmp_path / "src/odd/notes.txt").write_text("no image")
    seen = {}
    for seed, threads in ((0, 2), (0, 1), (5, 2)):
        destination = tmp_path / f"dst-{seed}-{threads}"
        run = prepare("shards", tmp_path / "src", destination, "--shard-mib", 1, "--seed", seed, "--threads", threads)
        assert run.status == DONE, run
        seen[seed, threads] = contents(destination)
        order, members = [], {}
        for shard in sorted(destination.iterdir()):
            with tarfile.open(shard) as archive:
                for member in archive:
                    assert member.isfile() and (member.mtime, member.uid, member.gid) == (0, 0, 0)
                    order.append(member.name)
                    members[member.name] = archive.extractfile(member).read()
        expected = {name: text for name, text in contents(tmp_path / "src").items() if not name.endswith(".txt")}
        assert members == expected and len(order) == len(expected)
        assert order != sorted(order)
    assert seen[0, 1] == seen[0, 2] != seen[5, 2]
    assert subprocess.run(["tar", "tf", tmp_path / "dst-0-2/shard-000000.tar"], capture_output=True).returncode == 0


# Tests of `prepare tokens`.

WORDS = """the a of and to in is that it was for on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know lock step train tensor
größe naïve café Ελλάδα Москва привет 東京 日本語 中文字符 한국어 עברית العربية हिन्दी 😀 👩‍👩‍👧 ½ ² Ⅷ 3.14 1999 don't we'll
it's they're I'd you've I'm O'Neil 'tis isn't ___ <html> {x: 1} == != -> // #include \\n ... — “quoted” ‘so’ …""".split()
SPACES = [" "] * 30 + ["\n", "\n\n", "  ", "\t", "   ", "\r\n", "\u00a0", "\u3000", " \n", "\u2009", ""]


def write_text(path, bytes_wanted, seed):
    """Writes at least `bytes_wanted` bytes of random words and white space of all kinds, in UTF-8. Returns the path."""
    draw = random.Random(seed)
    parts, size = [], 0
    while size < bytes_wanted:
        part = draw.choice(WORDS) + draw.choice(SPACES)
        if draw.random() < 0.05:
            part = part.capitalize()
        if draw.random() < 0.01:
            part += "".join(chr(draw.choice([33, 65, 97, 0xC0, 0x400, 0x4E00, 0x1F300]) + draw.randrange(26)) for _ in range(9))
        parts.append(part)
        size += len(part.encode())
    path.write_bytes("".join(parts).encode())
    return path


def read_tokens(path):
    header = np.fromfile(path, "<i4", 256)
    tokens = np.fromfile(path, "<u2", offset=1024)
    assert header[0] == 20240520 and header[1] == 1 and header[2] == len(tokens)
    return tokens


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Returns (a folder with a vocabulary that the tokenizers package has trained, a tokenizer that encodes with it).
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("vocabulary")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(write_text(folder / "text", 300_000, 0))], trainer)
    tokenizer.model.save(str(folder))
    # Text that looks like the special token must be encoded as ordinary text.
    plain = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    plain.pre_tokenizer = tokenizer.pre_tokenizer
    return folder, plain


def test_tokens_as_tokenizers_has_them(tmp_path, vocabulary):
    folder, tokenizer = vocabulary
    end = tokenizer.token_to_id(END)
    files = [write_text(tmp_path / f"{i}.txt", size, i) for i, size in enumerate([1, 50, 3000, 400_000, 2_500_000], 1)]
    # In this file, the pieces that are encoded separately end within long runs of one character.
    (tmp_path / "runs.txt").write_text(("a" * 300_000 + " " * 400_000 + "\n" + "=" * 500_000 + "\n") * 3)
    files.append(tmp_path / "runs.txt")
    expected = []
    for file in files:
        expected += [end] + tokenizer.encode(file.read_bytes().decode()).ids
    for threads in (1, 2, 5):
        output = tmp_path / f"{threads}.bin"
        run = prepare("tokens", *files, "--output", output, "--vocab", folder, "--threads", threads)
        assert run.status == DONE and "data.classes: 1200" in run.out, run
        np.testing.assert_array_equal(read_tokens(output), expected)


def test_documents_inside_a_file(tmp_path, vocabulary):
    folder, tokenizer = vocabulary
    end = tokenizer.token_to_id(END)
    documents = [write_text(tmp_path / "text", 10_000 * i, i).read_bytes().decode() for i in range(15)]
    for separator in (END, "\n--\n", "\u3000"):
        text = separator.join(documents)
        (tmp_path / "all.txt").write_bytes(text.encode())
        expected = []
        for document in text.split(separator):
            expected += [end] + (tokenizer.encode(document).ids if document else [])
        output = tmp_path / f"{ord(separator[-1])}.bin"
        run = prepare("tokens", tmp_path / "all.txt", "--output", output, "--vocab", folder, "--split-on", separator)
        assert run.status == DONE, run
        np.testing.assert_array_equal(read_tokens(output), expected)


def test_shards_and_validation(tmp_path):
    file = write_text(tmp_path / "text", 3_000_000, 1)
    options = ["--shard-tokens", 1_000_000, "--validation-fraction", 0.25]
    run = prepare("tokens", file, "--output", tmp_path / "o.bin", *options)
    assert run.status == DONE, run
    names = sorted(path.name for path in tmp_path.glob("o*"))
    assert names == ["o_000000.bin", "o_000001.bin", "o_000002.bin", "o_validation.bin"]
    tokens = np.concatenate([read_tokens(tmp_path / name) for name in names])
    assert tokens.tolist() == [256, *file.read_bytes()]
    assert abs(len(read_tokens(tmp_path / "o_validation.bin")) - 0.25 * len(tokens)) < 2


def test_trains_on_tokens(tmp_path):
    file = write_text(tmp_path / "text", 50_000, 1)
    assert prepare("tokens", file, "--output", tmp_path / "t.bin", "--validation-fraction", 0.1).status == DONE
    data = 'format: TOKENS train: "t.bin" validation: "t_validation.bin" classes: 257 tokens { length: 32 }'
    model = 'name: "gpt2" gpt2 { layers: 1 heads: 2 width: 16 }'
    config = write_config(
        tmp_path, f"global_batch: 4 max_steps: 2 log {{ every_steps: 1 }} data {{ {data} }} model {{ {model} }}"
    )
    assert len(trained_losses(config, tmp_path / "run")) == 2


def test_bad_text(tmp_path, vocabulary):
    folder, _ = vocabulary
    file = write_text(tmp_path / "text", 3_000_000, 1)
    text = bytearray(file.read_bytes())
    position = text.index(b" ", 2_000_000) + 1
    text[position] = 0xFF
    file.write_bytes(text)
    error = prepare("tokens", file, "--output", tmp_path / "o.bin", "--vocab", folder)
    expect_error(error, DATA, f"{file}: byte {position}: not UTF-8")
    (folder / "broken").mkdir()
    vocab = json.loads((folder / "vocab.json").read_text())
    (folder / "broken/vocab.json").write_text(json.dumps({**vocab, "word": 70_000}))
    shutil.copy(folder / "merges.txt", folder / "broken")
    error = prepare("tokens", file, "--output", tmp_path / "o.bin", "--vocab", folder / "broken")
    expect_error(error, DATA, "vocab.json: token word is 70000: tokens are whole numbers below 65536")


# Tests of interruptions and failures.


def interrupted(command, progress, wanted_kills, looks=100):
    """Runs the command repeatedly until it completes, and kills it at most `wanted_kills` times. Polls progress() while
    the command runs, counts the polls that find more progress than there was when this attempt started, and kills the
    command when the count reaches a random number between 1 and `looks`. Returns the number of kills."""
    kills = 0
    while True:
        process = subprocess.Popen(
            [LOCKSTEP, "prepare", *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        start = progress()
        moments = 1 + random.Random(kills).randrange(looks)
        while process.poll() is None and (kills >= wanted_kills or moments > 0):
            if progress() > start:
                moments -= 1
        process.kill()
        error = process.communicate()[1]
        if process.returncode == 0:
            return kills
        assert process.returncode == -signal.SIGKILL, error
        kills += 1


@pytest.mark.all_tier("images use the same output folder as shards, and need data that take seconds to make")
def test_killed_images(tmp_path):
    write_photographs(tmp_path / "src", 2500, side=64)
    command = ["images", tmp_path / "src", tmp_path / "whole", "--size", 40, "--threads", 2]
    assert prepare(*command).status == DONE
    command[2] = tmp_path / "dst"

    def progress():
        """Returns the number of complete batches of 64 files that have their final names."""
        try:
            return sum(1 for _ in (tmp_path / "dst.partial/files").rglob("*.jpg")) // 64
        except FileNotFoundError:  # the folder was renamed meanwhile
            return 0

    assert interrupted(command, progress, 8, looks=5) >= 8
    assert contents(tmp_path / "dst") == contents(tmp_path / "whole")
    assert not (tmp_path / "dst.partial").exists()


def test_killed_shards(tmp_path):
    for i in range(400):
        path = tmp_path / f"src/class{i % 4}/{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(i).randbytes(100_000))
    command = ["shards", tmp_path / "src", tmp_path / "whole", "--shard-mib", 1, "--threads", 2]
    assert prepare(*command).status == DONE
    command[2] = tmp_path / "dst"

    def progress():
        try:
            return len(list((tmp_path / "dst.partial/files").glob("*.tar")))
        except FileNotFoundError:  # the folder has been renamed
            return 0

    assert interrupted(command, progress, 8) >= 8
    assert contents(tmp_path / "dst") == contents(tmp_path / "whole")


@pytest.mark.all_tier("killed tokens go on like those on a full disk, and need data that take seconds to make")
def test_killed_tokens(tmp_path):
    one = write_text(tmp_path / "one", 10_000_000, 1).read_bytes()
    file = tmp_path / "text"
    file.write_bytes(one * 20)
    options = ["--shard-tokens", 20_000_000, "--validation-fraction", 0.3, "--threads", 2]
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    assert prepare("tokens", file, "--output", tmp_path / "whole/t.bin", *options).status == DONE

    def progress():
        """Returns the number of checkpoints; there is one after every 16 pieces of 1 MiB."""
        try:
            return int((tmp_path / "parts/t.bin.partial/position").read_text().split()[0]) // 16
        except (FileNotFoundError, IndexError):
            return 0

    assert interrupted(["tokens", file, "--output", tmp_path / "parts/t.bin", *options], progress, 8) >= 8
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert len(contents(tmp_path / "parts")) == 8 + 4


@pytest.fixture
def little_space(tmp_path):
    """Yields a folder on a file system of 4 MiB, and a function that enlarges the file system."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    yield folder, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("what", ["images", "shards", "tokens"])
@pytest.mark.all_tier("images and shards end on a full disk as tokens do", unless=lambda what: what == "tokens")
def test_full_disk(tmp_path, little_space, what):
    folder, make_room = little_space
    if what == "tokens":
        command = ["tokens", write_text(tmp_path / "text", 5_000_000, 1), "--output", folder / "dst"]
    else:
        (tmp_path / "src/a").mkdir(parents=True)
        noise = np.random.default_rng(1).integers(0, 256, (128, 128, 3)).astype("u1")
        for i in range(300):
            Image.fromarray(np.roll(noise, i)).save(tmp_path / f"src/a/{i}.jpg", quality=95)
        command = [what, tmp_path / "src", folder / "dst"]
        command += ["--size", 500] if what == "images" else ["--shard-mib", 1]
    expect_error(prepare(*command), DATA, f"{folder}/dst.partial/", "No space left on device: make room")
    assert not (folder / "dst").exists()
    make_room()
    run = prepare(*command)
    assert run.status == DONE, run
    assert (folder / "dst").exists() and not (folder / "dst.partial").exists()


def test_no_larger_files(tmp_path):
    """Tests a limit on file sizes, which, unlike a small disk, needs no mount."""
    file = write_text(tmp_path / "text", 2_000_000, 1)
    done = subprocess.run(
        [LOCKSTEP, "prepare", "tokens", file, "--output", tmp_path / "o.bin"],
        capture_output=True,
        text=True,
        restore_signals=False,  # the program inherits from Python that SIGXFSZ is ignored
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )
    assert done.returncode == DATA and "cannot be written: File too large" in done.stderr, done


@pytest.mark.all_tier("an interrupt ends the program as a kill does, and needs data that take seconds to make")
def test_interrupted_from_the_keyboard(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(write_text(tmp_path / "one", 1_000_000, 1).read_bytes() * 110)
    process = subprocess.Popen([LOCKSTEP, "prepare", "tokens", file, "--output", tmp_path / "o.bin"])
    while not (tmp_path / "o.bin.partial/position").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    run = prepare("tokens", file, "--output", tmp_path / "o.bin")
    assert run.status == DONE and "are done already: going on" in run.out, run
    assert len(read_tokens(tmp_path / "o_000000.bin")) == 100_000_000


@pytest.mark.all_tier("the lock is that of other outputs, and the test needs data that take seconds to make")
def test_one_run_at_a_time(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"word " * 50_000_000)
    command = ["tokens", file, "--output", tmp_path / "o.bin"]
    process = subprocess.Popen([LOCKSTEP, "prepare", *map(str, command)], stdout=subprocess.DEVNULL)
    while not (tmp_path / "o.bin.partial/job").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGSTOP)
    expect_error(prepare(*command), USAGE, "o.bin: another run is making it at this moment")
    process.kill()
    process.wait()


def test_other_options_and_sources(tmp_path):
    write_photographs(tmp_path / "src", 10)
    (tmp_path / "src/class0/bad.jpg").write_bytes(b"no image")
    command = ["images", tmp_path / "src", tmp_path / "dst", "--size"]
    assert prepare(*command, 50).status == DATA
    expect_error(prepare(*command, 60), USAGE, "dst.partial: was begun with --size 50, and now it is --size 60: delete")
    (tmp_path / "src/class0/bad.jpg").unlink()
    expect_error(prepare(*command, 50), USAGE, "dst.partial: was begun with ", "(11 images with hash ", "(10 images")
    shutil.rmtree(tmp_path / "dst.partial")
    assert prepare(*command, 50).status == DONE
    expect_error(prepare(*command, 50), USAGE, "dst: is there already: delete it or name another")


def test_wrong_arguments(tmp_path):
    source = tmp_path / "src"
    write_photographs(source, 3)
    long_name = "n" * 300
    for arguments, *parts in (
        [["images", source, tmp_path / "dst"], "--size is required"],
        [["images", source, tmp_path / "dst", "--size", 0], "--size"],
        [["images", source, tmp_path / "dst", "--size", 9, "--quality", 101], "--quality"],
        [["images", source, tmp_path / "dst", "--size", 9, "--bad", "ignore"], "--bad"],
        [["images", source, source / "dst", "--size", 9], "lies in"],
        [["images", source, f"{__file__}/dst", "--size", 9], "cannot be made: Not a directory"],
        [["shards", source / "class0", source], "lies in"],
        [["shards", source, tmp_path / "dst", "--shard-mib", 0], "--shard-mib"],
        [["shards", tmp_path / "none", tmp_path / "dst"], "none: no such folder"],
        [["shards", tmp_path / long_name, tmp_path / "dst"], f"{long_name}: File name too long"],
        [["tokens", tmp_path / "none", "--output", tmp_path / "o"], "none: cannot be opened"],
        [["tokens", tmp_path / "src", "--output", tmp_path / "o"], "not a regular file"],
        [["tokens", __file__], "--output is required"],
        [["tokens", __file__, "--output", ""], '--output "": names no file that can be made'],
        [["tokens", __file__, "--output", f"{tmp_path}/o/"], 'o/": names no file that can be made'],
        [["tokens", __file__, "--output", tmp_path / "o", "--vocab", long_name], f"{long_name}: File name too long"],
        [["tokens", __file__, "--output", tmp_path / "o", "--vocab", "word"], "neither \"bytes\" nor"],
        [["tokens", __file__, "--output", tmp_path / "o", "--vocab", source], "no encoder.json or vocab.json"],
        [["tokens", __file__, "--output", tmp_path / "o", "--validation-fraction", 1], "--validation-fraction"],
        [["tokens", __file__, "--output", tmp_path / "o", "--shard-tokens", 3_000_000_000], "--shard-tokens"],
    ):
        run = prepare(*arguments)
        expect_error(run, run.status, *parts)
        assert run.status in (USAGE, DATA), run
    expect_error(Run(["prepare"]), USAGE, "lockstep prepare --help")
    expect_error(Run(["prepare", "image"]), USAGE, 'did you mean "images"?')
    expect_error(Run(["prepare", "shards", source, tmp_path / "dst"], ranks=2), USAGE, "-n: prepare shards runs in one process")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["src"]
