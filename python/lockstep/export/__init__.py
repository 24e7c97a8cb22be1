"""Exports a PyTorch module to an .lsm file: api.py has the function, __main__.py the command.

api.py      the steps of an export, and the description of the module in the file
trace.py    runs torch.export in training mode and in evaluation mode, with a symbolic batch size
graph.py    converts the traced graph to JSON
check.py    checks that the graph computes the same as the module
hidden_state.py   finds what a module keeps in Python, which no graph has
operations.py, ../operations.txt   the operations that a graph may call
tensor_file.py   writes the safetensors file
sources.py  makes the module that a name such as `timm:NAME` or `hf:FOLDER` stands for
weights.py  reads pretrained weights
to_torch.py converts a run's weights to a state dict
errors.py   the one-line error
"""
