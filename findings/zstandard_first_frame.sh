#!/usr/bin/env bash
# Guess: all functions of the package zstandard decompress the same bytes to the same result, and raise an error if more
# data follows the end of the compressed data.
# Fact: a .zst file may consist of several frames in a row. Such a file results if two files are concatenated, if pzstd
# compresses a file, or if a program appends to a compressed log. The command zstd -d and zstandard.open() read all
# frames. zstandard.decompress() and read_to_iter() stop after the first frame, without a warning.
# Seen with zstandard 0.25.0:
#   as found: of 2 lines in 2 frames open() reads 2, decompress() 1, read_to_iter() 1
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q zstandard==0.25.0
venv/bin/python - <<'EOF'
import sys
import zstandard

data = zstandard.compress(b"one\n") + zstandard.compress(b"two\n")
with open("lines.zst", "wb") as file:
    file.write(data)
with zstandard.open("lines.zst", "rt") as file:
    opened = len(list(file))
whole = zstandard.decompress(data).count(b"\n")
pieces = b"".join(zstandard.ZstdDecompressor().read_to_iter(data)).count(b"\n")
seen = f"of 2 lines in 2 frames open() reads {opened}, decompress() {whole}, read_to_iter() {pieces}"
found = seen == "of 2 lines in 2 frames open() reads 2, decompress() 1, read_to_iter() 1"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
