"""Implements TabM (Gorishniy et al. 2025) in PyTorch, with Lockstep's parameter names. Each member is computed
separately as a network with a weight matrix of its own: the shared matrix times the member's two factors."""

import torch
from torch import nn
from torch.nn import functional as F


def drawn(*sizes):
    """Returns a parameter of random numbers, also where TabM's initialisation has constants, so that a factor in a
    wrong place changes the result."""
    return nn.Parameter(torch.empty(sizes).uniform_(-1, 1) / sizes[-1] ** 0.5)


class Layer(nn.Module):
    def __init__(self, members, inputs, outputs):
        super().__init__()
        self.weight, self.bias = drawn(outputs, inputs), drawn(members, outputs)
        self.r, self.s = nn.Parameter(drawn(members, inputs) + 1), nn.Parameter(drawn(members, outputs) + 1)

    def of(self, member, x):
        weight = self.s[member][:, None] * self.weight * self.r[member][None, :]
        return F.linear(x, weight, self.bias[member])


class TabM(nn.Module):
    def __init__(self, inputs, hidden, outputs, members):
        super().__init__()
        widths = [inputs, *hidden]
        self.layers = nn.ModuleList(Layer(members, *pair) for pair in zip(widths, hidden))
        self.head = nn.ParameterDict(dict(weight=drawn(members, outputs, widths[-1]), bias=drawn(members, outputs)))
        self.members = members

    def member(self, member, x):
        for layer in self.layers:
            x = F.relu(layer.of(member, x))
        return F.linear(x, self.head["weight"][member], self.head["bias"][member])

    def forward(self, x):
        """Returns the outputs of all members, [count, members, outputs]."""
        return torch.stack([self.member(member, x) for member in range(self.members)], dim=1)


def together(outputs, task):
    """Returns the ensemble's predictions [count, outputs]: numbers for REGRESSION, logits of the mean probabilities for
    MULTI_LABEL, and logarithms of the mean probabilities for CLASSIFICATION."""
    if task == "REGRESSION":
        return outputs.mean(1)
    if task == "MULTI_LABEL":
        return outputs.sigmoid().mean(1).logit()
    return outputs.softmax(2).mean(1).log()
