"""A small U-Net of a kind that tests export."""

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Down and up again, with what was there before, and a class for each pixel."""

    def __init__(self, classes):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.last = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        x = functional.relu(self.down(x))
        return {"out": self.last(torch.cat([x, self.up(self.middle(x))], 1))}
