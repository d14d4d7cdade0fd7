"""The format of the Extreme Classification Repository: a header with the sizes, then one line per row."""

from __future__ import annotations

from carya.data.corpus import Matrices
from carya.data.formats.matrices.sparse_lines import Limits, RowCollector, format_rows, parse_block, to_csr
from carya.data.formats.matrices.sparse_text import parse_header
from carya.data.io.files import PathLike, display_name, open_output, read_blocks, read_lines
from carya.data.vocabulary import Vocabulary


def looks_like_xmc(path: PathLike) -> bool:
    """Return whether the first line of a file consists of three integers."""
    fields = next(read_lines(path), "").split()
    return len(fields) == 3 and all(field.isascii() and field.isdigit() for field in fields)


def read_xmc(path: PathLike, *, vocabulary: Vocabulary | None = None) -> Matrices:
    r"""Read matrices from a file: ``rows features labels``, then one ``label,label feature:value …`` line per row.

    A row without labels begins with a space. Labels and features are numbered from 0.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.txt")
    ...     _ = file.write_text("2 3 4\n0,3 1:0.5 2:1\n 0:2\n")
    ...     read_xmc(file).X.toarray().tolist()
    [[0.0, 0.5, 1.0], [2.0, 0.0, 0.0]]
    """
    name = display_name(path)
    blocks = read_blocks(path)
    header, _, block = next(blocks, b"").partition(b"\n")
    n_rows, n_features, n_labels = parse_header(header, name, ("rows", "features", "labels"))
    limits = Limits(n_features, n_labels, "the header")
    collector = RowCollector()
    while block or (block := next(blocks, b"")):
        collector.add_stated(parse_block(block, collector.n_rows + 2, name, limits, skip_blank=False), n_rows, name)
        block = b""
    collector.check_n_rows(n_rows, name)
    X = to_csr(collector.take("feature_counts"), collector.take("features"), collector.take("values"), n_features)
    Y = to_csr(collector.take("label_counts"), collector.take("labels"), None, n_labels)
    if collector.n_rows > n_rows:  # trailing blank lines
        X, Y = X[:n_rows], Y[:n_rows]
    return Matrices(X, Y, vocabulary, name)


def write_xmc(path: PathLike, matrices: Matrices) -> int:
    """Write matrices and return the number of rows; reading them restores the float32 values exactly."""
    with open_output(path) as stream:
        n_rows, n_labels = matrices.Y.shape
        stream.write(f"{n_rows} {matrices.X.shape[1]} {n_labels}\n".encode())
        for line in format_rows(matrices.X, matrices.Y):
            stream.write(line.encode())
    return int(n_rows)
