"""Implements the random augmentation of training images a second time, as a reference for tests: it draws the random
numbers as data/feed/augment.h and data/dataset/sample_random.h describe, and changes the images with torchvision's
functions."""

import math

import numpy as np
import torch
from torch.nn import functional as F
from torchvision.transforms.v2 import functional as V

from sampler_reference import _GOLDEN, _MASK, _mix

_SALT = int.from_bytes(b"augment", "big")
_ADJUST = [V.adjust_brightness, V.adjust_contrast, V.adjust_saturation, V.adjust_hue]
_COLOURS = ["brightness", "contrast", "saturation", "hue"]


class SampleRandom:
    def __init__(self, seed, epoch, index):
        self.state = _mix((_mix((seed + _mix(epoch)) & _MASK) + index) & _MASK)

    def uniform(self):
        self.state = (self.state + _GOLDEN) & _MASK
        return (_mix(self.state) >> 11) * 2.0**-53

    def normal(self):
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def log_gamma(self, shape):
        """Returns the logarithm of a gamma-distributed number, by Marsaglia and Tsang's method."""
        d = (shape + 1 if shape < 1 else shape) - 1 / 3
        while True:
            x = self.normal()
            u = 1 - self.uniform()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(u) < x * x / 2 + d * (1 - v + math.log(v)):
                break
        log = math.log(d * v)
        return log + math.log(1 - self.uniform()) / shape if shape < 1 else log

    def beta(self, a):
        first = self.log_gamma(a)
        return float(torch.sigmoid(torch.tensor(first - self.log_gamma(a), dtype=torch.float64)))


def draw(options, seed, epoch, index, height, width):
    """Returns the random values of one sample: the order of the four colour changes, their factors, the box (left, top,
    right, bottom) in pixels into which another sample's image is mixed, the share of the sample's own image in the
    box's pixels, and the share of the sample's own label in the loss. Without a mixture the box is empty and both
    shares are 1."""
    random = SampleRandom(_mix((seed + _SALT) & _MASK), epoch, index)
    order = [0, 1, 2, 3]
    for i in (3, 2, 1):
        j = int((i + 1) * random.uniform())
        order[i], order[j] = order[j], order[i]
    factors = []
    for name in _COLOURS:
        middle, half = (0 if name == "hue" else 1), options.get(name, 0)
        factors.append(float(np.float32(middle - half + 2 * half * random.uniform())))
    mixup, cutmix = options.get("mixup", 0), options.get("cutmix", 0)
    if not mixup and not cutmix:
        return order, factors, (0, 0, 0, 0), 1, 1
    cuts = random.uniform() < 0.5 if mixup and cutmix else bool(cutmix)
    own = random.beta(cutmix if cuts else mixup)
    if not cuts:
        return order, factors, (0, 0, width, height), own, own
    # The box is computed as in torchvision's CutMix.make_params.
    x, y = int(random.uniform() * width), int(random.uniform() * height)
    half = 0.5 * math.sqrt(1 - own)
    half_width, half_height = int(half * width), int(half * height)
    left, top, right, bottom = max(x - half_width, 0), max(y - half_height, 0), min(x + half_width, width), min(y + half_height, height)
    return order, factors, (left, top, right, bottom), 0, 1 - (right - left) * (bottom - top) / (width * height)


def augmented(pixels, options, seed, epoch, indices):
    """Returns (the augmented images of a micro-batch of uint8 pixels, as float32 in [0, 1]; the share of each sample's
    own label in the loss). The first sample's random values give the mixture of the whole micro-batch."""
    height, width = pixels.shape[-2:]
    draws = [draw(options, seed, epoch, index, height, width) for index in indices]
    images = V.to_dtype(pixels, torch.float32, scale=True)
    for image, (order, factors, *_) in zip(images, draws):
        changed = image
        for i in order:
            if options.get(_COLOURS[i]):
                changed = _ADJUST[i](changed, factors[i])
        image.copy_(changed)
    (left, top, right, bottom), own, own_in_loss = draws[0][2:]
    inside = np.s_[..., top:bottom, left:right]
    mixed = images.clone()
    mixed[inside] = own * images[inside] + (1 - own) * images.roll(1, 0)[inside]
    return mixed, own_in_loss


def loss_sum(output, target, own, label_smoothing, class_weight=None):
    """Returns the sum of the losses for the mixed targets that torchvision's MixUp and CutMix make: each sample's own
    label has the share `own`, and the label of the sample before it has the rest; the last sample counts as the one
    before the first."""
    one_hot = F.one_hot(target, output.shape[1]).float()
    mixed = own * one_hot + (1 - own) * one_hot.roll(1, 0)
    return F.cross_entropy(output, mixed, weight=class_weight, reduction="sum", label_smoothing=label_smoothing)
