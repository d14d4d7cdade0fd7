"""Server settings. All limits apply per worker process."""

from __future__ import annotations

import re
from dataclasses import dataclass

from carya.core.parameters import Parameterized, parameter
from carya.core.rules import Choice, Integer, Real, Rule

_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+|[0-9a-fA-F:.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*|\*")
_ORIGIN = re.compile(r"\*|https?://[A-Za-z0-9.\[\]:_-]+")
_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+(?:/[!-~]*)?")

#: Log levels, from the most to the least verbose.
LOG_LEVELS = ("debug", "info", "warning", "error")


class BearerTokens(Rule):
    """A tuple of tokens that can be sent in an Authorization header, or None."""

    text = "a non-empty tuple of strings that consist of visible ASCII characters, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        if value is None:
            return True
        return isinstance(value, tuple) and len(value) > 0 and all(_is_token(token) for token in value)


def _is_token(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isascii() and value.isprintable() and " " not in value


class HostNames(Rule):
    """Names or addresses of hosts without ports, or None."""

    text = "one or more host names or addresses without ports, '*', or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        if value is None:
            return True
        names = value if isinstance(value, tuple) else (value,)
        return len(names) > 0 and all(isinstance(name, str) and _HOST_NAME.fullmatch(name) for name in names)


class Origins(Rule):
    """Origins of web pages, such as "https://example.org", or None."""

    text = "one or more origins such as https://example.org, '*', or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        if value is None:
            return True
        origins = value if isinstance(value, tuple) else (value,)
        return len(origins) > 0 and all(isinstance(origin, str) and _ORIGIN.fullmatch(origin) for origin in origins)


class CollectorUrl(Rule):
    """The URL of an OpenTelemetry collector, or None."""

    text = "a URL such as http://localhost:4318/v1/traces, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        return value is None or (isinstance(value, str) and _URL.fullmatch(value) is not None)


class PartAddresses(Rule):
    """A tuple with one string of URLs per part, or None."""

    text = "a non-empty tuple with one string of URLs per part, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        if value is None:
            return True
        return isinstance(value, tuple) and len(value) > 0 and all(isinstance(urls, str) and urls for urls in value)


class PartToken(Rule):
    """A token that can be sent in an Authorization header, or None."""

    text = "a string that consists of visible ASCII characters, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        return value is None or _is_token(value)


class FilePath(Rule):
    """A nonempty path, or None."""

    text = "a nonempty path, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        return value is None or (isinstance(value, str) and value.strip() != "" and "\0" not in value)


class LanguageCode(Rule):
    """An ISO 639 language code, such as "en"."""

    text = "a two- or three-letter language code"

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        return isinstance(value, str) and value.isascii() and value.isalpha() and len(value) in (2, 3)


@dataclass(eq=False, repr=False, kw_only=True)
class ServerSettings(Parameterized):
    """Limits and options of the server.

    Examples
    --------
    >>> ServerSettings(max_texts=100)
    ServerSettings(max_texts=100)
    >>> ServerSettings(max_text=100)
    Traceback (most recent call last):
    carya.errors.UnknownParameterError: ServerSettings has no parameter 'max_text'. Did you mean 'max_texts'?
    """

    max_body_bytes: int = parameter(
        8 << 20, Integer(1), "maximum size of a request body in bytes (413 if exceeded)", group="limits"
    )
    max_header_bytes: int = parameter(
        32 << 10,
        Integer(1024),
        "maximum size of the request line and headers in bytes (431 if exceeded)",
        group="limits",
    )
    max_texts: int = parameter(
        1024, Integer(1), "maximum number of texts per request (413 if exceeded)", group="limits"
    )
    max_text_length: int = parameter(
        200_000, Integer(1), "maximum length of a text in characters (413 if exceeded)", group="limits"
    )
    max_top_k: int = parameter(
        1000, Integer(1), "maximum value of top_k in a request (400 if exceeded)", group="limits"
    )
    max_beam_width: int = parameter(
        1000, Integer(1), "maximum value of beam_width in a request (400 if exceeded)", group="limits"
    )
    max_labels: int = parameter(
        200_000,
        Integer(1),
        "maximum number of labels per response, summed over all texts (400 if exceeded)",
        group="limits",
    )
    max_filter_labels: int = parameter(
        100_000,
        Integer(1),
        "maximum number of different allowed or excluded labels in a label filter (413 if exceeded)",
        group="limits",
    )
    max_pairs: int = parameter(
        2_000_000,
        Integer(1),
        "maximum number of (text, label) pairs scored per request with a label filter (413 if exceeded)",
        group="limits",
    )

    max_connections: int = parameter(
        2000, Integer(1), "maximum number of open connections (503 if exceeded)", group="concurrency"
    )
    max_requests: int = parameter(
        256, Integer(1), "maximum number of concurrent requests (429 if exceeded)", group="concurrency"
    )
    max_queued: int = parameter(
        64, Integer(0), "maximum number of long requests waiting for a thread (429 if exceeded)", group="concurrency"
    )
    max_buffered_bytes: int = parameter(
        256 << 20,
        Integer(1),
        "maximum total size of buffered request and response bodies in bytes (429 if exceeded)",
        group="concurrency",
    )
    max_client_share: float = parameter(
        0.5,
        Real(0, 1, open_low=True),
        "share of the limits on connections, requests and buffers that one client address can use (429 or 503 if "
        "exceeded); 1 disables the limits per client, for example behind a reverse proxy",
        group="concurrency",
    )
    threads: int = parameter(
        2,
        Integer(1),
        "number of threads for long requests; short requests are processed in the event loop",
        group="concurrency",
    )

    request_timeout: float = parameter(
        30.0,
        Real(0, open_low=True),
        "maximum processing time per request in seconds (503 if exceeded)",
        group="timeouts",
    )
    body_timeout: float = parameter(
        10.0,
        Real(0, open_low=True),
        "maximum time for receiving a request body in seconds (408 if exceeded)",
        group="timeouts",
    )
    idle_timeout: float = parameter(
        20.0,
        Real(0, open_low=True),
        "seconds after which a connection is closed if the client has not sent a complete request head or has not read "
        "a response",
        group="timeouts",
    )
    reload_interval: float = parameter(
        1.0, Real(0), "seconds between checks for new model versions; 0 disables the checks", group="timeouts"
    )

    reload_timeout: float = parameter(
        60.0,
        Real(0, open_low=True),
        "seconds after which a new model version that is still being loaded is logged as a failure",
        group="timeouts",
    )

    part_timeout: float = parameter(
        5.0,
        Real(0, open_low=True),
        "seconds after which a request to a part of a split model fails and is sent to another replica",
        group="timeouts",
    )

    log_level: str = parameter(
        "info", Choice(*LOG_LEVELS), "minimum level of logged events; info includes every request", group="logging"
    )
    log_texts: bool = parameter(False, Choice(True, False), "log the request texts", group="logging")

    trace_endpoint: str | None = parameter(
        None,
        CollectorUrl(),
        "URL of an OpenTelemetry collector that accepts OTLP over HTTP, to which one span per request is sent; None "
        "disables tracing",
        group="logging",
    )

    tokens: tuple[str, ...] | None = parameter(
        None, BearerTokens(), "accepted bearer tokens; None disables authentication", group="authentication"
    )
    allowed_hosts: str | tuple[str, ...] | None = parameter(
        None,
        HostNames(),
        "host names and addresses by which clients can reach the server (421 for other names); '*' allows all names; "
        "None allows all names except on a loopback address, where it allows only the names of this machine",
        group="authentication",
    )
    cors_origins: str | tuple[str, ...] | None = parameter(
        None,
        Origins(),
        "origins of web pages whose scripts can send requests to the server (CORS), such as https://example.org; '*' "
        "allows all origins; None allows none",
        group="authentication",
    )
    min_gzip_bytes: int = parameter(
        4096,
        Integer(0),
        "minimum size in bytes of responses that are compressed with gzip if the client accepts it; 0 disables "
        "compression",
        group="compression",
    )
    parts: tuple[str, ...] | None = parameter(
        None,
        PartAddresses(),
        "URLs of the parts of a split model, with replicas separated by commas; None means the part folders next to "
        "the top folder",
        group="parts",
    )
    part_token: str | None = parameter(
        None,
        PartToken(),
        "bearer token for the servers that serve the parts; None means no authentication",
        group="parts",
    )
    jobs_folder: str | None = parameter(
        None,
        FilePath(),
        "folder for the files of batch jobs (/v1/jobs); None disables batch jobs",
        group="batch jobs",
    )
    max_job_bytes: int = parameter(
        256 << 20,
        Integer(1, 1 << 60),
        "maximum size of a job file in bytes (413 if exceeded)",
        group="batch jobs",
    )
    max_jobs: int = parameter(
        100, Integer(1), "maximum number of jobs, including completed ones (429 if exceeded)", group="batch jobs"
    )
    max_jobs_bytes: int = parameter(
        4 << 30,
        Integer(1, 1 << 60),
        "maximum total size of the files and results of all jobs in bytes (429 if exceeded)",
        group="batch jobs",
    )
    job_retention: float = parameter(
        86_400.0, Real(0), "seconds after which finished jobs and their results are deleted", group="batch jobs"
    )
    feedback_file: str | None = parameter(
        None,
        FilePath(),
        "SQLite database for accepted and rejected labels (/v1/feedback); None disables feedback",
        group="feedback",
    )
    max_feedback: int = parameter(
        1_000_000, Integer(1), "maximum number of texts in the feedback database (503 if exceeded)", group="feedback"
    )
    max_feedback_bytes: int = parameter(
        1 << 30,
        Integer(1 << 16, 1 << 40),
        "maximum size of the feedback database in bytes (503 if exceeded)",
        group="feedback",
    )
    projects_file: str | None = parameter(
        None,
        FilePath(),
        "file in the format of Annif's projects.cfg with the names, languages and vocabularies of the projects in "
        "Annif's API; None uses the names of the models",
        group="annif",
    )
    language: str = parameter(
        "en", LanguageCode(), "language of the texts and label names, as reported by Annif's API", group="annif"
    )

    @property
    def origins(self) -> tuple[str, ...]:
        """The allowed origins of web pages."""
        return (self.cors_origins,) if isinstance(self.cors_origins, str) else self.cors_origins or ()

    @property
    def host_names(self) -> frozenset[str] | None:
        """The allowed host names in lower case; None allows all names."""
        names = (self.allowed_hosts,) if isinstance(self.allowed_hosts, str) else self.allowed_hosts
        return None if names is None or "*" in names else frozenset(name.lower() for name in names)
