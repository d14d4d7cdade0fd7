"""Memory limits for training, and allocation of large arrays in temporary files if a limit is set."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carya import _core
from carya.errors import ParameterError

if TYPE_CHECKING:  # importing NumPy takes longer than printing the help text
    from numpy.typing import DTypeLike, NDArray

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_UNSCALED_LIMIT = 16 * 10**9
#: The sizes that :func:`parse_size` accepts, for error messages.
SIZE_TEXT = "a size such as '8GB' or '512MiB'"


def parse_size(text: str) -> int:
    """Parse a size and return the number of bytes.

    >>> parse_size("8GB"), parse_size("1.5 GiB")
    (8000000000, 1610612736)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?", text.strip().upper())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 0 < size < 2**60:
        raise ParameterError(f"Expected {SIZE_TEXT}, got {text!r}.")
    return size


def format_size(size: float) -> str:
    """Format a number of bytes as a human-readable size.

    >>> format_size(8e9), format_size(35e6)
    ('8.0 GB', '35 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


@contextmanager
def limit_memory(limit: str | None) -> Iterator[None]:
    """Keep the resident memory of the process below a limit.

    Large arrays allocated by the native core or by :func:`empty` are stored in temporary files, so that they can be
    paged out to disk. The results are the same as without a limit. Nested limits have no effect.

    Parameters
    ----------
    limit : str or None
        A size such as ``"8GB"``; None means no limit.
    """
    if limit is None or is_limited():
        yield
        return
    folder = tempfile.gettempdir()
    try:
        _core.set_memory_limit(parse_size(limit), folder)
    except RuntimeError as error:
        raise ParameterError(
            f"memory={limit!r} requires a temporary folder on disk: {error} Set the environment variable TMPDIR to a "
            "folder on disk."
        ) from None
    try:
        yield
    finally:
        _core.clear_memory_limit()


def is_limited() -> bool:
    """Return whether a memory limit is enforced."""
    return _core.memory_limit() > 0


def scale(amount: float) -> float:
    """Reduce an amount of work per step if the memory limit is low, because a step with less work uses less memory.

    If the limit is below 16 GB, the amount is multiplied by the ratio of the limit to 16 GB; otherwise, it is returned
    unchanged.
    """
    return amount * min(1.0, (_core.memory_limit() or _UNSCALED_LIMIT) / _UNSCALED_LIMIT)


def check_required(required: float, items: dict[str, float]) -> None:
    """Raise ParameterError if the memory that must stay resident exceeds the enforced limit.

    Parameters
    ----------
    required : float
        The required memory in bytes, in addition to the memory in use.
    items : dict of str to float
        The bytes required for each purpose, for the error message.
    """
    limit, used = _core.memory_limit(), _core.resident_bytes()
    if limit == 0 or used + required <= limit:
        return
    parts = [f"{format_size(used)} already in use", *(f"{format_size(items[name])} for {name}" for name in items)]
    raise ParameterError(
        f"memory must be at least {format_size(used + required)} for this training run, got {format_size(limit)}: "
        f"{', '.join(parts)}. Increase memory, reduce n_jobs, or read the data from files."
    )


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialized array; if a memory limit is enforced and the array is large, it is stored in a file."""
    import numpy as np

    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    # SciPy copies arrays that are views of arrays with more elements, so use a typed allocator if there is one.
    allocators: dict[str, Callable[[int], NDArray[Any]]] = {
        "int32": _core.allocate_int32,
        "int64": _core.allocate_int64,
        "float32": _core.allocate_float32,
    }
    if dtype.name in allocators:
        return allocators[dtype.name](size).reshape(shape)
    return _core.allocate_bytes(size * dtype.itemsize).view(dtype).reshape(shape)


def page_out() -> None:
    """Unmap the pages of all arrays that are stored in files; they are read again when they are used."""
    _core.page_out()


def to_limited(array: NDArray[Any]) -> NDArray[Any]:
    """Copy an array to memory that can be paged out to disk; without a memory limit, return the array itself."""
    if not is_limited():
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy
