"""Images with labels, for the tests of image folders and of tar shards, and a config that trains on them."""

import numpy as np
from PIL import Image

from harness import write_config

CLASSES = ["blue", "green", "red"]


def photograph(random, label, side):
    """Noise of side x side pixels, brighter in the colour of its class."""
    pixels = random.integers(0, 120, (side, side + 9, 3))
    pixels[:, :, 2 - label] += 100
    return Image.fromarray(pixels.astype(np.uint8))


def turned_by(value):
    """EXIF data of a camera that was held so."""
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def write_images_config(folder, data, images="", epochs=3):
    """A config in the folder of `data`; what it says of `images` besides their size."""
    return write_config(
        folder,
        f"""seed: 1 global_batch: 16 epochs: {epochs} log {{ every_steps: 1 }}
        model {{ name: "mlp" mlp {{ hidden: 32 }} }} optimizer {{ lr: 0.003 }}
        data {{ format: IMAGES {data} images {{ size: 16 {images} }} mean: 0.5 std: 0.25 }}""",
    )
