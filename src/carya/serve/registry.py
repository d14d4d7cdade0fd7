"""The models a server has, by name; each is replaced by its new version while requests go on with the old one."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import carya
from carya.core import storage
from carya.core.parameters import Parameterised
from carya.errors import InputError, ModelFormatError
from carya.serve.http.errors import NotFound
from carya.serve.label_index import LabelIndex
from carya.text.text_ranker import TextRanker

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


_MOST_KNOWN = 100_000


@dataclass(frozen=True, eq=False)
class Loaded:
    """A version of a model, in memory as long as a request uses it.

    Attributes
    ----------
    name : str
        What the server calls the model.
    ranker : TextRanker
    version : str
        The checksum of its manifest: another version has another one.
    changed : datetime
        When it was saved.
    """

    name: str
    ranker: TextRanker
    version: str
    changed: datetime

    @cached_property
    def index(self) -> LabelIndex:
        """Its labels by what they begin with; made when it is first needed."""
        return LabelIndex(self.ranker.labels_, self.ranker.label_names_)

    @cached_property
    def known(self) -> dict[int, tuple[str, str]]:
        """Ids and names of labels that were asked for, which are asked for again."""
        return {}

    def label(self, number: int) -> tuple[str, str]:
        """The id and the name of a label."""
        pair = self.known.get(number)
        if pair is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            pair = self.known[number] = (self.ranker.labels_[number], self.ranker.label_names_[number])
        return pair


@dataclass(frozen=True)
class Failure:
    """A new version that could not be opened; the old one stays."""

    name: str
    reason: str


@dataclass
class _Place:
    path: Path
    seen: tuple[int, ...]
    loaded: Loaded


@dataclass
class Registry:
    """Named models from folders.

    Examples
    --------
    >>> import tempfile
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["pet", "barks"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/pets")
    ...     registry = Registry.open({"pets": f"{folder}/pets"})
    >>> registry.names(), registry.default
    (['pets'], 'pets')
    >>> registry.get().ranker.suggest("a dog", top_k=1)[0].label
    'pet'
    """

    _places: dict[str, _Place] = field(default_factory=dict)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, folders: Mapping[str, str | os.PathLike[str]]) -> Registry:
        """Open models; the first is the default. Raises ModelFormatError or InputError if one cannot be served."""
        if not folders:
            raise InputError("there is no model to serve")
        registry = cls()
        for name, folder in folders.items():
            if not name or not set(name) <= _NAME_CHARACTERS:
                raise InputError(f"the name of a model is {name!r}; it must be of letters, digits, '_', '-' and '.'")
            place = Path(folder)
            seen = _look(place)
            registry._places[name] = _Place(place, seen, _load(name, place))
        return registry

    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._places)

    @property
    def default(self) -> str:
        """The model of requests that name none."""
        return next(iter(self._places))

    def get(self, name: str | None = None) -> Loaded:
        """The newest version of a model; raises NotFound."""
        place = self._places.get(self.default if name is None else name)
        if place is None:
            raise NotFound(f"there is no model {name!r}; the models are {', '.join(map(repr, self._places))}")
        return place.loaded

    def refresh(self, *, anyway: bool = False) -> list[Loaded | Failure]:
        """Open the models whose folders were replaced, or all of them `anyway`; what was opened and what could not be.

        A folder that is not there, or not whole, leaves the old version at work. One that is no whole model is tried
        again when it was replaced, or `anyway`; after other failures every time.
        """
        news: list[Loaded | Failure] = []
        with self._one_at_a_time:
            for name, place in self._places.items():
                seen = _look(place.path)
                if not seen or (seen == place.seen and not anyway):
                    continue
                try:
                    loaded = _load(name, place.path)
                    storage.load(place.path)  # with all there is checked: a damaged one must not replace a whole one
                    if _version(place.path)[0] != loaded.version:
                        continue  # replaced in between, so another was checked: it is opened the next time
                except (ModelFormatError, InputError) as error:
                    news.append(Failure(name, str(error)))  # and stays so: it is not tried again until asked for
                except Exception as error:  # memory, files, a fault: may be over the next time
                    news.append(Failure(name, f"{type(error).__name__}: {error}"))
                    continue
                else:
                    if loaded.version != place.loaded.version:
                        place.loaded = loaded  # in one step: whoever asks has the old one or the new one
                        news.append(loaded)
                place.seen = seen
        return news


def _look(place: Path) -> tuple[int, ...]:
    """What tells one save of a model from another; nothing if there is none."""
    try:
        now = (place / "manifest.json").stat()
    except OSError:
        return ()
    return now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size


def _load(name: str, place: Path) -> Loaded:
    for _ in range(3):
        version, changed = _version(place)
        ranker = carya.load(place)
        if not isinstance(ranker, TextRanker):
            raise InputError(f"{place}: a {type(ranker).__name__} cannot be served: only a TextRanker can")
        if (version, changed) == _version(place):  # otherwise it was replaced in between
            break
    for part in (ranker.vectorizer_, ranker.model_):
        one_thread(part)
    ranker.suggest_all(["a first text, so that nobody waits for what is only needed once"])
    return Loaded(name, ranker, version, changed)


def one_thread(part: Parameterised) -> None:
    """Let an estimator, and those it is made of, use one thread: requests are answered side by side.

    >>> model = carya.Ensemble([carya.XRLinear(), carya.XRLinear(verbose=True)])
    >>> one_thread(model)
    >>> [(one.n_jobs, one.verbose) for one in model.members]
    [(1, False), (1, False)]
    """
    known = {field.name for field in part.parameters()}
    part.set_params(**{name: value for name, value in (("n_jobs", 1), ("verbose", False)) if name in known})
    for value in vars(part).values():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, Parameterised):
                one_thread(one)


def _version(place: Path) -> tuple[str, datetime]:
    path = place / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        return str(manifest["checksum"]), datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"{place} is not a saved model: {error}") from None
