import os

import pytest
import torch


def pytest_collection_modifyitems(items):
    if os.environ.get("DEVICE") == "CUDA" and not torch.cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs a GPU; this machine has none"))
