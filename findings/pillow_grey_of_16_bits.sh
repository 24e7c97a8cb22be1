#!/usr/bin/env bash
# Guess: Pillow converts every PNG of 16 bits to 8 bits in the same way: it takes the upper byte of each value, or it
# scales the values.
# Fact: when Pillow opens a colour image of 16 bits, it takes the upper byte of each value. It opens a grey image of 16
# bits as 16 bits, and convert() to "L" or "RGB" then clips the values at 255. So a depth map or an X-ray turns white:
# all values above 1/257 of the range become 255.
# Seen with Pillow 13.0.0 (for the values 0, 256, 4096 and 65535):
#   as found: in colour [0, 1, 16, 255], in grey [0, 255, 255, 255]
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q pillow==13.0.0 pypng==0.20220715.0
venv/bin/python - <<'EOF'
import sys
import png
from PIL import Image

values = [0, 256, 4096, 65535]
for name, grey, repeats in (("grey.png", True, 1), ("colour.png", False, 3)):
    with open(name, "wb") as file:
        png.Writer(4, 1, greyscale=grey, bitdepth=16).write(file, [[value for value in values for _ in range(repeats)]])
colour, grey = (
    [Image.open(name).convert("RGB").getpixel((x, 0))[0] for x in range(4)] for name in ("colour.png", "grey.png")
)
seen = f"in colour {colour}, in grey {grey}"
found = seen == "in colour [0, 1, 16, 255], in grey [0, 255, 255, 255]"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
