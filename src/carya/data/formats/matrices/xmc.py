"""The format of the Extreme Classification Repository: a line of sizes, then a line a row."""

from __future__ import annotations

from carya.data.corpus import Matrices
from carya.data.formats.columns import brief
from carya.data.formats.matrices.sparse_lines import Gathered, Limits, format_rows, matrix, parse
from carya.data.io.files import PathLike, read_blocks, read_lines, shown, writing
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_MOST = 2**31 - 1


def looks_like_xmc(path: PathLike) -> bool:
    """Whether the first line of a file is three whole numbers."""
    fields = next(read_lines(path), "").split()
    return len(fields) == 3 and all(one.isascii() and one.isdigit() for one in fields)


def read_xmc(path: PathLike, *, vocabulary: Vocabulary | None = None) -> Matrices:
    r"""The matrices of a file: ``rows features labels``, then ``label,label feature:value …`` for each row.

    A row without labels begins with a space. Numbers of labels and features begin with 0.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.txt")
    ...     _ = file.write_text("2 3 4\n0,3 1:0.5 2:1\n 0:2\n")
    ...     read_xmc(file).X.toarray().tolist()
    [[0.0, 0.5, 1.0], [2.0, 0.0, 0.0]]
    """
    name = shown(path)
    blocks = read_blocks(path)
    header, _, block = next(blocks, b"").partition(b"\n")
    rows, features, labels = _sizes(header, name)
    limits = Limits(features, labels, "the header")
    gathered = Gathered()
    while block or (block := next(blocks, b"")):
        parsed = parse(block, gathered.rows + 2, name, limits, skip_blank=False)
        for row in range(max(0, rows - gathered.rows), parsed.label_counts.size):
            if parsed.label_counts[row] or parsed.feature_counts[row]:
                raise InputError(f"{name}, line {gathered.rows + row + 2}: a row after the {rows} of the header")
        gathered.add(parsed)
        block = b""
    if gathered.rows < rows:
        raise InputError(f"{name}: the number of rows is {gathered.rows}, in the header it is {rows}")
    counts, columns, values = (gathered.column(one) for one in ("feature_counts", "features", "values"))
    X = matrix(counts, columns, values, features)
    Y = matrix(gathered.column("label_counts"), gathered.column("labels"), None, labels)
    if gathered.rows > rows:  # blank lines at the end
        X, Y = X[:rows], Y[:rows]
    return Matrices(X, Y, vocabulary, name)


def write_xmc(path: PathLike, matrices: Matrices) -> int:
    """Write matrices; gives the number of rows. Values are written so that the same float32 is read."""
    with writing(path) as stream:
        rows, labels = matrices.Y.shape
        stream.write(f"{rows} {matrices.X.shape[1]} {labels}\n".encode())
        for line in format_rows(matrices.X, matrices.Y):
            stream.write(line.encode())
    return int(rows)


def _sizes(header: bytes, name: str) -> tuple[int, int, int]:
    text = header.decode("ascii", "backslashreplace").strip()
    fields = text.split()
    if len(fields) != 3 or not all(one.isdigit() for one in fields) or any(len(one) > 18 for one in fields):
        wanted = "three whole numbers: rows, features, labels"
        raise InputError(f"{name}, line 1: the header must be {wanted}; got {brief(text)}")
    rows, features, labels = map(int, fields)
    if max(features, labels) > _MOST:
        raise InputError(f"{name}, line 1: {max(features, labels)} columns are more than {_MOST}")
    return rows, features, labels
