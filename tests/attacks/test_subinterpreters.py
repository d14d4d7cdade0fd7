"""Test that importing Carya in a subinterpreter raises a clear error, and that the main interpreter still works."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
if sys.argv[1] == "imported":
    import carya, carya.core.matrices
code = f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import carya
except ImportError as error:
    assert str(error).startswith("Carya cannot be imported in a subinterpreter. Use threads"), error
else:
    raise AssertionError("no exception")
print("refused")
'''
subinterpreter = interpreters.create()
failure = interpreters.run_string(subinterpreter, code)  # raises an exception in Python 3.11 and 3.12
assert failure is None, failure
interpreters.destroy(subinterpreter)
import numpy as np
import carya
ones = np.eye(4, dtype=np.float32)
print(carya.XRLinear(n_jobs=1).fit(ones, ones).rank(ones[0], top_k=1)[0].tolist())
"""


@pytest.mark.parametrize("state", ["imported", "not imported"])
def test_subinterpreters_are_refused(state: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, state], capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["refused", "[0]"]
