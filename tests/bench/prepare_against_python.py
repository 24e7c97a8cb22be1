"""Compares the speed of `lockstep prepare images` with that of Pillow in two processes, and the speed of `lockstep
prepare tokens` with that of the tokenizers package, on the same files, in turns.

    python prepare_against_python.py LOCKSTEP --images DIR --texts FILE ... [--size 256] [--rounds 3] [--threads 1 2]

DIR has one folder of JPEG files for each class. A vocabulary of 30,000 tokens is first trained on the texts. Prints one
JSON line: the medians over the rounds of Lockstep's images/s and MB/s for each number of threads (computed from the
times that Lockstep prints, which begin when all files are listed and end when the result is committed); the same for
the Python packages; and the bytes and the decoding time of the resized images with chroma subsampling 4:4:4, divided by
those with 4:2:0, at quality 90.
"""

import argparse
import io
import json
import multiprocessing
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

PROCESSES = 2


def shrink(job):
    """Shrinks one image as users of Pillow usually do: decodes the image at a reduced size if possible, resizes it, and
    writes it as a JPEG file."""
    from PIL import Image

    source, target, size = job
    image = Image.open(source)
    scale = min(image.size)
    if scale > size:
        image.draft("RGB", (size, size))
        wanted = [side * size // scale for side in image.size]
        image = image.convert("RGB").resize(wanted, Image.BILINEAR, reducing_gap=None)
    image.convert("RGB").save(target, quality=90)


def time_pillow(files, folder, size):
    """Returns how many images/s Pillow shrinks in PROCESSES processes."""
    jobs = [(file, folder / f"{i}.jpg", size) for i, file in enumerate(files)]
    with multiprocessing.Pool(PROCESSES) as pool:
        pool.map(shrink, jobs[:8])
        begin = time.perf_counter()
        pool.map(shrink, jobs, chunksize=16)
        return len(files) / (time.perf_counter() - begin)


def train_vocabulary(texts, folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train(
        [str(text) for text in texts],
        trainers.BpeTrainer(
            vocab_size=30_000,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.model.save(str(folder))


def time_tokenizers(texts, vocabulary):
    """Returns how many MB/s the tokenizers package encodes with its own threads, in batches of 64 texts of 100,000
    characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary / "vocab.json"), str(vocabulary / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "".join(path.read_text() for path in texts)
    pieces = [text[i : i + 100_000] for i in range(0, len(text), 100_000)]
    begin = time.perf_counter()
    for i in range(0, len(pieces), 64):
        tokenizer.encode_batch_fast(pieces[i : i + 64])
    return 1e-6 * len(text.encode()) / (time.perf_counter() - begin)


def chroma(files, size):
    """Returns two ratios of chroma subsampling 4:4:4 to 4:2:0: of the bytes, and of the seconds to decode."""
    from PIL import Image

    def measure(**options):
        coded, seconds = 0, 0
        for image in images:
            file = io.BytesIO()
            image.save(file, "JPEG", quality=90, **options)
            coded += file.tell()
            begin = time.process_time()
            Image.open(file).load()
            seconds += time.process_time() - begin
        return coded, seconds

    images = []
    for file in files[:300]:
        image = Image.open(file).convert("RGB")
        scale = min(image.size) / size
        images.append(image.resize([int(side / scale) for side in image.size], Image.BILINEAR) if scale > 1 else image)
    small, large = measure(), measure(subsampling=0)
    return {
        "bytes_444_over_420": round(large[0] / small[0], 3),
        "decode_444_over_420": round(large[1] / small[1], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--images", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    files = sorted(path for path in arguments.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    rounds = {"pillow": [], "tokenizers": [], **{f"{what} {n}": [] for what in ("images", "tokens") for n in arguments.threads}}

    def prepare(*options):
        command = [arguments.lockstep, "prepare", *map(str, options)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with tempfile.TemporaryDirectory(dir=arguments.images.parent) as name:
        folder = pathlib.Path(name)
        train_vocabulary(arguments.texts, folder)
        for _ in range(arguments.rounds):
            (folder / "pillow").mkdir()
            rounds["pillow"].append(time_pillow(files, folder / "pillow", arguments.size))
            rounds["tokenizers"].append(time_tokenizers(arguments.texts, folder))
            for n in arguments.threads:
                line = prepare("images", arguments.images, folder / "images", "--size", arguments.size, "--threads", n)
                rounds[f"images {n}"].append(len(files) / float(re.search(r"in ([\d.]+) s", line)[1]))
                options = ["--output", folder / "tokens.bin", "--vocab", folder, "--threads", n]
                line = prepare("tokens", *arguments.texts, *options)
                rounds[f"tokens {n}"].append(float(re.search(r"([\d.]+) MB/s", line)[1]))
                shutil.rmtree(folder / "images")
                (folder / "tokens.bin").unlink()
            shutil.rmtree(folder / "pillow")
    medians = {name: round(statistics.median(rates), 1) for name, rates in rounds.items()}
    best = max(arguments.threads)
    print(
        json.dumps(
            {
                "images": len(files),
                "size": arguments.size,
                "images_per_s": {n: medians[f"images {n}"] for n in arguments.threads},
                "pillow_images_per_s": medians["pillow"],
                "images_ratio": round(medians[f"images {best}"] / medians["pillow"], 2),
                "tokens_mb_per_s": {n: medians[f"tokens {n}"] for n in arguments.threads},
                "tokenizers_mb_per_s": medians["tokenizers"],
                "tokens_ratio": round(medians[f"tokens {best}"] / medians["tokenizers"], 2),
                **chroma(files, arguments.size),
            }
        )
    )


if __name__ == "__main__":
    main()
