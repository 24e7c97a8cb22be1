#!/usr/bin/env bash
# Guess: resize() with BILINEAR blends the pixels of each image, or refuses an image that it cannot blend.
# Fact: images with a palette (GIFs and many PNGs) and images of one bit are resized with NEAREST, whatever filter the
# caller asks for, and without a warning. thumbnail() does the same. Calling convert("RGB") before resize() avoids this.
# Seen with Pillow 13.0.0 (columns of 0 and 255 alternate; an image of 8 x 8 is resized to 4 x 4):
#   as found: RGB has values between 0 and 255, palette has only [255], one bit has only [255]
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q pillow==13.0.0
venv/bin/python - <<'EOF'
import sys
from PIL import Image

stripes = Image.new("L", (8, 8))
stripes.putdata([x % 2 * 255 for _ in range(8) for x in range(8)])
values = {}
for mode in ("RGB", "P", "1"):
    stripes.convert(mode).save("stripes.png")
    small = Image.open("stripes.png").resize((4, 4), Image.Resampling.BILINEAR).convert("L")
    values[mode] = sorted({value for _, value in small.getcolors()})
between = "values between" if all(0 < value < 255 for value in values["RGB"]) else f"{values['RGB']} of"
seen = f"RGB has {between} 0 and 255, palette has only {values['P']}, one bit has only {values['1']}"
found = seen == "RGB has values between 0 and 255, palette has only [255], one bit has only [255]"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
