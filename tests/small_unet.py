"""Defines a small U-Net, which tests export."""

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Implements a U-Net of one level: downsamples, upsamples, joins the result with the skip connection, and returns
    the class scores of each pixel in a dict."""

    def __init__(self, classes):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.last = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        x = functional.relu(self.down(x))
        return {"out": self.last(torch.cat([x, self.up(self.middle(x))], 1))}
