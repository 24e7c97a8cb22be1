"""Makes labelled images for the tests of image folders and tar shards, and a config that trains on them."""

import numpy as np
from PIL import Image

from harness import write_config

CLASSES = ["blue", "green", "red"]


def photograph(random, label, side):
    """Returns an image of noise, side + 9 pixels wide and side high, that is brighter in the colour channel of its
    class."""
    pixels = random.integers(0, 120, (side, side + 9, 3))
    pixels[:, :, 2 - label] += 100
    return Image.fromarray(pixels.astype(np.uint8))


def turned_by(value):
    """Returns EXIF data in which Orientation is `value`."""
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def write_images_config(folder, data, images="", epochs=3):
    """Writes a config into the folder: `data` goes into its data message, and `images` into data.images beside the
    size."""
    return write_config(
        folder,
        f"""seed: 1 global_batch: 16 epochs: {epochs} log {{ every_steps: 1 }}
        model {{ name: "mlp" mlp {{ hidden: 32 }} }} optimizer {{ lr: 0.003 }}
        data {{ format: IMAGES {data} images {{ size: 16 {images} }} mean: 0.5 std: 0.25 }}""",
    )
