#!/usr/bin/env bash
# Guess: a tar archive of a folder with three sample files contains three samples, however the files are stored on the
# disk.
# Fact: if several files are hard links to the same data, as cp -al and deduplication tools make them, tar stores the
# bytes of only the first file, and the other names as links. Python's tarfile does the same. WebDataset skips every
# member of an archive that is not a regular file, so the samples that were stored as links are lost without a warning.
# tar --hard-dereference stores each of them as a regular file.
# Seen with webdataset 1.0.2, GNU tar 1.34 and Python 3.11.7:
#   as found: of 3 samples, one a hard link, are read: 2 by tar, 2 by tarfile, 3 by --hard-dereference
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps webdataset==1.0.2 braceexpand==0.1.7 numpy==2.4.6 pyyaml==6.0.4
venv/bin/python - <<'EOF'
import os
import subprocess
import sys
import tarfile
import webdataset

os.mkdir("samples")
for name, text in (("0.txt", "same"), ("1.txt", "other")):
    with open(f"samples/{name}", "w") as file:
        file.write(text)
os.link("samples/0.txt", "samples/2.txt")
subprocess.run(["tar", "--sort=name", "-cf", "tar.tar", "-C", "samples", "."], check=True)
with tarfile.open("tarfile.tar", "w") as shard:
    shard.add("samples", ".")
subprocess.run("tar --sort=name --hard-dereference -cf whole.tar -C samples .".split(), check=True)
by_tar, by_tarfile, whole = (
    sum("txt" in sample for sample in webdataset.WebDataset(f"{shard}.tar", shardshuffle=False))
    for shard in ("tar", "tarfile", "whole")
)
seen = f"of 3 samples, one a hard link, are read: {by_tar} by tar, {by_tarfile} by tarfile"
seen += f", {whole} by --hard-dereference"
found = seen == "of 3 samples, one a hard link, are read: 2 by tar, 2 by tarfile, 3 by --hard-dereference"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
