"""Accepted and rejected labels, stored in an SQLite database.

All workers write to the same database. It uses a write-ahead log, so readers, such as the export to a corpus, do not
block writers.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from carya.errors import InputError

_BUSY_SECONDS = 10.0
_APPLICATION_ID = 0x43415259  # "CARY": identifies the file as a feedback database
_SCHEMA = """
CREATE TABLE IF NOT EXISTS feedback (
    id INTEGER PRIMARY KEY,
    created TEXT NOT NULL,
    model TEXT NOT NULL,
    version TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS feedback_label (
    feedback INTEGER NOT NULL REFERENCES feedback (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    accepted INTEGER NOT NULL CHECK (accepted IN (0, 1)),
    PRIMARY KEY (feedback, label)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS feedback_model ON feedback (model);
"""


@dataclass(frozen=True)
class FeedbackRow:
    """The feedback on one text.

    Attributes
    ----------
    text : str
    accepted, rejected : list of str
        Label ids, in alphabetical order.
    """

    text: str
    accepted: list[str]
    rejected: list[str]


class FeedbackStore:
    """Database of accepted and rejected labels.

    Parameters
    ----------
    path : path
        Created if it does not exist, unless `must_exist` is set.
    max_rows : int, optional
        The maximum number of texts; unlimited by default.
    max_bytes : int, optional
        The maximum size of the file, without the write-ahead log; unlimited by default.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FeedbackStore(Path(folder) / "feedback.db")
    ...     _ = store.add("pets", "1f", "a cat", accepted=["cat"], rejected=["dog"])
    ...     _ = store.add("pets", "1f", "a cat", accepted=["pet"], rejected=["cat"])
    ...     print(*store.rows())
    FeedbackRow(text='a cat', accepted=['pet'], rejected=['cat', 'dog'])
    """

    def __init__(
        self, path: Path, *, max_rows: int | None = None, max_bytes: int | None = None, must_exist: bool = False
    ) -> None:
        self._path = path
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        if must_exist and not path.is_file():
            raise InputError(f"{path} does not exist. Pass the file that was passed to carya serve --feedback-file.")
        try:
            with self._connect() as connection:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if application != _APPLICATION_ID and n_tables:
                    raise InputError(f"{path} is a database that belongs to another program. Pass a new file.")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise InputError(
                f"{path} cannot be used for feedback: {error}. Pass a writable file on a local disk."
            ) from None

    def add(
        self, model: str, version: str, text: str, *, accepted: Sequence[str], rejected: Sequence[str]
    ) -> int | None:
        """Store the feedback on a text durably; return its id, or None if the database is full."""
        (number,) = self.add_all(model, version, [(text, accepted, rejected)]) or (None,)
        return number

    def add_all(
        self, model: str, version: str, rows: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    ) -> list[int] | None:
        """Store the feedback on several texts in one transaction; return the ids, or None if the database is full."""
        try:
            return self._insert(model, version, rows)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                return None
            raise

    def _insert(
        self, model: str, version: str, rows: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    ) -> list[int] | None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        numbers = []
        with self._connect() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            (n_rows,) = connection.execute("SELECT coalesce(max(id), 0) FROM feedback").fetchone()
            if self._max_rows is not None and n_rows + len(rows) > self._max_rows:
                return None
            for text, accepted, rejected in rows:
                cursor = connection.execute(
                    "INSERT INTO feedback (created, model, version, text) VALUES (?, ?, ?, ?)",
                    (created, model, version, text),
                )
                labels = dict.fromkeys(rejected, 0) | dict.fromkeys(accepted, 1)
                connection.executemany(
                    "INSERT INTO feedback_label VALUES (?, ?, ?)",
                    [(cursor.lastrowid, label, is_accepted) for label, is_accepted in labels.items()],
                )
                numbers.append(int(cursor.lastrowid or 0))
        return numbers

    def rows(self, model: str | None = None) -> Iterator[FeedbackRow]:
        """Yield the feedback on each distinct text, optionally only for one model.

        If a label of a text was both accepted and rejected, the latest feedback counts.
        """
        query = """
            SELECT text, label, accepted FROM feedback LEFT JOIN feedback_label ON feedback = id
            WHERE ?1 IS NULL OR model = ?1 ORDER BY text, id, label
        """
        with self._connect() as connection:
            current: str | None = None
            labels: dict[str, int] = {}
            for text, label, is_accepted in connection.execute(query, (model,)):
                if text != current:
                    if current is not None:
                        yield _row(current, labels)
                    current, labels = text, {}
                if label is not None:
                    labels[label] = is_accepted
            if current is not None:
                yield _row(current, labels)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            if self._max_bytes is not None:  # SQLite never reduces the limit below the current size
                (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
                connection.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page_bytes)}")
            yield connection
        finally:
            connection.close()


def _row(text: str, labels: dict[str, int]) -> FeedbackRow:
    return FeedbackRow(
        text,
        sorted(label for label, is_accepted in labels.items() if is_accepted),
        sorted(label for label, is_accepted in labels.items() if not is_accepted),
    )
