"""What a server allows: sizes, times, numbers of things at once. Every limit is for one worker process."""

from __future__ import annotations

from dataclasses import dataclass

from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Integer, Real, Rule


class _Tokens(Rule):
    """Secrets that can stand in a header."""

    text = "a tuple of strings of visible ASCII characters, or None"

    def allows(self, value: object) -> bool:
        """Whether the value is such a tuple."""
        if value is None:
            return True
        return (
            isinstance(value, tuple)
            and len(value) > 0
            and all(
                isinstance(one, str) and one and one.isascii() and one.isprintable() and " " not in one for one in value
            )
        )


class _Language(Rule):
    """A code such as en."""

    text = "a language code of two or three letters"

    def allows(self, value: object) -> bool:
        """Whether the value is such a code."""
        return isinstance(value, str) and value.isascii() and value.isalpha() and len(value) in (2, 3)


@dataclass(eq=False, repr=False, kw_only=True)
class Settings(Parameterised):
    """Limits and options of a server.

    Examples
    --------
    >>> Settings(max_texts=100)
    Settings(max_texts=100)
    >>> Settings(max_text=100)
    Traceback (most recent call last):
    carya.errors.UnknownParameterError: Settings has no parameter 'max_text'; did you mean 'max_texts'?
    """

    # Of a request.
    max_body: int = parameter(8 << 20, Integer(1), "the most bytes of a request's body; more is 413")
    max_texts: int = parameter(1024, Integer(1), "the most texts of a request; more is 413")
    max_text_length: int = parameter(200_000, Integer(1), "the most characters of a text; more is 413")
    max_top_k: int = parameter(1000, Integer(1), "the most labels a text may ask for")
    max_beam_width: int = parameter(1000, Integer(1), "the widest beam a request may ask for")
    max_pairs: int = parameter(
        2_000_000, Integer(1), "the most pairs of a text and a label that a request with a label filter may score"
    )
    max_labels: int = parameter(200_000, Integer(1), "the most labels of all texts of an answer together")
    max_header: int = parameter(32 << 10, Integer(1024), "the most bytes of a request's line and headers; more is 431")

    # Of time, in seconds.
    request_seconds: float = parameter(30.0, Real(0, above=True), "the longest a request may work or wait; then 503")
    body_seconds: float = parameter(10.0, Real(0, above=True), "the longest a body may take to arrive; then 408")
    idle_seconds: float = parameter(
        20.0, Real(0, above=True), "how long a connection may send no request, or half a one, or not read its answer"
    )
    watch_seconds: float = parameter(
        1.0, Real(0), "how often model folders are looked at for a new version; 0 is never"
    )

    # Of things at once.
    max_connections: int = parameter(2000, Integer(1), "the most connections of a worker; more are 503")
    max_requests: int = parameter(256, Integer(1), "the most requests a worker has begun at once; more are 429")
    max_waiting: int = parameter(64, Integer(0), "the most long requests waiting for a thread; more are 429")
    max_held: int = parameter(256 << 20, Integer(1), "the most bytes of bodies a worker holds at once; more are 429")
    threads: int = parameter(2, Integer(1), "threads of a worker for long requests; short ones need none")

    # Of what is told.
    log: str = parameter("info", Choice("debug", "info", "warning", "error"), "what is logged; info has every request")
    log_texts: bool = parameter(False, Choice(True, False), "write the texts of requests to the log too")

    language: str = parameter("en", _Language(), "the language of texts and names of labels, as Annif's API tells it")
    tokens: tuple[str, ...] | None = parameter(None, _Tokens(), "whoever has one of these may ask; None is everybody")
