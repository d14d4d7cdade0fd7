"""The XMC format and svmlight: parsed at once or line by line, the rows are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from carya.data import Matrices, write_data
from carya.data.formats.matrices.sparse_lines import (
    Limits,
    Rows,
    _OddError,
    _parse_at_once,
    _parse_one_by_one,
    format_rows,
    parse,
)
from carya.data.formats.matrices.svmlight import read_svmlight
from carya.data.formats.matrices.xmc import read_xmc
from carya.errors import InputError

LIMITS = Limits(20, 10, "the header")

# Mostly good lines, and all kinds of bad ones.
numbers = st.integers(0, 22).map(str) | st.sampled_from(["", "01", "1.0", "x", "-1", "+2", "9" * 30])
values = st.floats(width=32).map(str) | st.sampled_from(
    ["1", "", ".5", "1.", "1e3", "1e40", "nan", "1-2", "1.2.3", "0x1"]
)
pairs = st.builds("{}:{}".format, numbers, values) | st.sampled_from(["", "3", "1:2:3", ",", "3:1,4:1"])
rows = st.builds(
    "{}{}{}{}".format,
    st.lists(numbers, max_size=3).map(",".join),
    st.sampled_from([" ", " ", " ", "", "  ", "\t"]),
    st.lists(pairs, max_size=4).map(" ".join),
    st.sampled_from(["\n", "\n", "\r\n", " \n"]),
)


def same(left: Rows, right: Rows) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@given(block=st.lists(rows, min_size=1, max_size=4).map("".join))
@example(block="1,2 3:0.5 4:1\n 0:2\n3\n\n")
@example(block="1 2:3 2:4\n")
@example(block="1,,2 3:1\n")
@example(block=",1 3:1\n")
def test_at_once_is_one_by_one(block: str) -> None:
    raw = block.encode()
    try:
        slow = _parse_one_by_one(raw, 1, "a.txt", LIMITS, skip_blank=False)
    except InputError:
        with pytest.raises(_OddError):
            _parse_at_once(raw, LIMITS)
        return
    assert same(parse(raw, 1, "a.txt", LIMITS, skip_blank=False), slow)


def test_usual_lines_are_parsed_at_once() -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 20), density=0.3, rng=rng, dtype=np.float32, format="csr")
    Y = sp.random_array((300, 10), density=0.1, rng=rng, format="csr")
    raw = "".join(format_rows(X, Y)).replace(" \n", "\n").encode()
    assert same(_parse_at_once(raw, LIMITS), _parse_one_by_one(raw, 1, "a.txt", LIMITS, skip_blank=False))


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 6))
def test_matrices_come_back(seed: int, rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(seed)
    X = sp.random_array((rows, 7), density=0.4, rng=rng, format="csr")
    X.data = (rng.standard_normal(X.nnz) * 10.0 ** rng.integers(-30, 30, X.nnz)).astype(np.float32)
    Y = sp.random_array((rows, 5), density=0.3, rng=rng, format="csr")
    path = tmp_path_factory.mktemp("xmc") / "data.txt"
    write_data(path, Matrices(X.astype(np.float32), Y))
    read = read_xmc(path)
    assert np.array_equal(read.X.toarray(), X.toarray())
    assert np.array_equal(read.Y.toarray(), Y.toarray() != 0)


def test_many_blocks_are_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = sp.eye_array(2000, 50, format="csr", dtype=np.float32)
    Y = sp.eye_array(2000, 10, format="csr", dtype=np.float32)
    write_data(tmp_path / "data.txt", Matrices(X, Y))
    whole = read_xmc(tmp_path / "data.txt")
    monkeypatch.setattr("carya.data.io.files.read_blocks.__defaults__", (100,))
    pieces = read_xmc(tmp_path / "data.txt")
    assert (whole.X != pieces.X).nnz == 0
    assert (whole.Y != pieces.Y).nnz == 0
    text = (tmp_path / "data.txt").read_text().splitlines()
    text[1500] = "0 x:1"
    (tmp_path / "data.txt").write_text("\n".join(text))
    with pytest.raises(InputError, match=r"data.txt, line 1501: a feature must be a whole number, got 'x'"):
        read_xmc(tmp_path / "data.txt")


def test_blank_lines_at_the_end_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("2 3 4\r\n1,1 2:1 0:3\r\n \r\n\r\n\r\n")
    read = read_xmc(tmp_path / "data.txt")
    assert read.X.toarray().tolist() == [[3, 0, 1], [0, 0, 0]]
    assert read.Y.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_svmlight_counts_from_0_or_1(tmp_path: Path) -> None:
    path = tmp_path / "data.svm"
    path.write_text("# a comment\n\n0,2 1:1 3:2 # another\n1 2:1\n")
    assert read_svmlight(path).X.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert read_svmlight(path, zero_based=True, n_features=5).X.toarray()[0].tolist() == [0, 1, 0, 2, 0]
    assert read_svmlight(path, n_labels=4).Y.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0]]
    with pytest.raises(InputError, match="there are 3 labels, at most 2 are expected"):
        read_svmlight(path, n_labels=2)
    path.write_text("1 0:1\n")
    assert read_svmlight(path).X.toarray().tolist() == [[1]]
    with pytest.raises(InputError, match="a feature has the number 0, and features are counted from 1"):
        read_svmlight(path, zero_based=False)
