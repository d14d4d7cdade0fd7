"""Tests for the XMC and svmlight formats: the vectorized and line-by-line parsers return the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from carya.data import Matrices, write_data
from carya.data.formats.matrices.sparse_lines import (
    Limits,
    _IrregularLinesError,
    _parse_line_by_line,
    _parse_vectorized,
    format_rows,
    parse_block,
)
from carya.data.formats.matrices.svmlight import read_svmlight
from carya.data.formats.matrices.xmc import read_xmc
from carya.errors import InputError

from matrix_helpers import same_arrays

LIMITS = Limits(20, 10, "the header")

# Most generated lines are valid; the others contain errors of all kinds.
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


def test_parsers_agree_on_arbitrary_lines() -> None:
    outcomes: Counter[str] = Counter()

    @given(block=st.lists(rows, min_size=1, max_size=4).map("".join))
    @example(block="1,2 3:0.5 4:1\n 0:2\n3\n\n")
    @example(block="1 2:3 2:4\n")
    @example(block="1,,2 3:1\n")
    @example(block=",1 3:1\n")
    def check(block: str) -> None:
        raw = block.encode()
        try:
            expected = _parse_line_by_line(raw, 1, "a.txt", LIMITS, skip_blank=False)
        except InputError:
            with pytest.raises(_IrregularLinesError):
                _parse_vectorized(raw, LIMITS)
            outcomes["rejected"] += 1
            return
        assert same_arrays(parse_block(raw, 1, "a.txt", LIMITS, skip_blank=False), expected)
        outcomes["accepted"] += 1

    check()
    assert outcomes["rejected"] > 0
    assert outcomes["accepted"] > 0


def test_the_vectorized_parser_accepts_regular_lines() -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 20), density=0.3, random_state=rng, dtype=np.float32, format="csr")
    Y = sp.random_array((300, 10), density=0.1, random_state=rng, format="csr")
    raw = "".join(format_rows(X, Y)).replace(" \n", "\n").encode()
    expected = _parse_line_by_line(raw, 1, "a.txt", LIMITS, skip_blank=False)
    assert same_arrays(_parse_vectorized(raw, LIMITS), expected)


@given(seed=st.integers(0, 10_000), n_rows=st.integers(0, 6))
def test_matrices_are_restored(seed: int, n_rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_rows, 7), density=0.4, random_state=rng, format="csr")
    X.data = (rng.standard_normal(X.nnz) * 10.0 ** rng.integers(-30, 30, X.nnz)).astype(np.float32)
    Y = sp.random_array((n_rows, 5), density=0.3, random_state=rng, format="csr")
    path = tmp_path_factory.mktemp("xmc") / "data.txt"
    write_data(path, Matrices(X.astype(np.float32), Y))
    data = read_xmc(path)
    assert np.array_equal(data.X.toarray(), X.toarray())
    assert np.array_equal(data.Y.toarray(), Y.toarray() != 0)


def test_results_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = sp.eye_array(2000, 50, format="csr", dtype=np.float32)
    Y = sp.eye_array(2000, 10, format="csr", dtype=np.float32)
    write_data(tmp_path / "data.txt", Matrices(X, Y))
    from_one_block = read_xmc(tmp_path / "data.txt")
    monkeypatch.setattr("carya.data.io.files.read_blocks.__defaults__", (100,))
    from_many_blocks = read_xmc(tmp_path / "data.txt")
    assert (from_one_block.X != from_many_blocks.X).nnz == 0
    assert (from_one_block.Y != from_many_blocks.Y).nnz == 0
    text = (tmp_path / "data.txt").read_text().splitlines()
    text[1500] = "0 x:1"
    (tmp_path / "data.txt").write_text("\n".join(text))
    with pytest.raises(InputError, match=r"data.txt, line 1501: A feature must be an integer >= 0, got 'x'\."):
        read_xmc(tmp_path / "data.txt")


def test_blank_lines_at_the_end_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("2 3 4\r\n1,1 2:1 0:3\r\n \r\n\r\n\r\n")
    data = read_xmc(tmp_path / "data.txt")
    assert data.X.toarray().tolist() == [[3, 0, 1], [0, 0, 0]]
    assert data.Y.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_svmlight_numbers_features_from_0_or_1(tmp_path: Path) -> None:
    path = tmp_path / "data.svm"
    path.write_text("# a comment\n\n0,2 1:1 3:2 # another\n1 2:1\n")
    assert read_svmlight(path).X.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert read_svmlight(path, zero_based=True, n_features=5).X.toarray()[0].tolist() == [0, 1, 0, 2, 0]
    assert read_svmlight(path, n_labels=4).Y.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0]]
    with pytest.raises(InputError, match="There are 3 labels, but at most 2 are expected"):
        read_svmlight(path, n_labels=2)
    path.write_text("1 0:1\n")
    assert read_svmlight(path).X.toarray().tolist() == [[1]]
    with pytest.raises(InputError, match="line 1: Expected features numbered from 1, but feature 0 occurs"):
        read_svmlight(path, zero_based=False)
