"""Writes a PyTorch module to a .lsm file: api.py has the function, __main__.py the command.

api.py      the steps of an export, and what the file says about the module
trace.py    torch.export, in training and in evaluation, with a symbolic batch
graph.py    the traced graph as JSON
check.py    the graph beside the module: they compute the same
operations.py, ../operations.txt   which operations a graph may call
tensor_file.py   writes the safetensors file
sources.py  makes the module that `timm:NAME`, `hf:FOLDER` ... name
weights.py  reads pretrained weights
to_torch.py a run's weights as a state dict
errors.py   the one-line error
"""
