"""Registry of served models. New model versions replace old ones without interrupting requests."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import carya
from carya.core import storage
from carya.core.parameters import set_in_all
from carya.errors import InputError, ModelFormatError
from carya.fork_safety import cached_property
from carya.loading import routed_model
from carya.models.base import BaseModel
from carya.models.routed.model import RoutedModel
from carya.models.routed.part import ModelPart
from carya.serve.file_guard import ArrayFileGuard
from carya.serve.http.errors import NotFoundError, ServiceUnavailableError
from carya.serve.ranking_cost import RankingCost
from carya.serve.settings import ServerSettings
from carya.text.base import BaseTextRanker
from carya.text.explore.explorer import Explorer

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_MAX_CACHED_LABELS = 100_000
_MAX_ECHO = 100  # characters; longer names are truncated in error messages


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedVersion:
    """A version of a model or of a part of a model, kept in memory as long as a request uses it.

    Attributes
    ----------
    name : str
        The name of the model on the server.
    version : str
        The checksum of the model's manifest.
    modified : datetime
        The time at which the model was saved.
    guard : ArrayFileGuard
        Detects changes to the memory-mapped file.
    """

    name: str
    version: str
    modified: datetime
    guard: ArrayFileGuard

    def check_unmodified(self) -> None:
        """Raise ServiceUnavailableError if the memory-mapped file of the model has been overwritten."""
        if self.guard.is_modified():
            raise self._modified_error()

    @contextlib.contextmanager
    def in_use(self) -> Generator[None, None, None]:
        """Context in which the memory-mapped file is used.

        Raises ServiceUnavailableError if the file is overwritten before or while it is used.
        """
        if not self.guard.begin_use():
            raise self._modified_error()
        try:
            yield
        finally:
            if not self.guard.end_use():
                raise self._modified_error()

    def _modified_error(self) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"The files of model {self.name!r} were overwritten while it was being served. It is unavailable until a "
            "valid version is loaded."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedPart(ServedVersion):
    """A version of a part of a split model.

    Attributes
    ----------
    part : ModelPart
    """

    part: ModelPart


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedModel(ServedVersion):
    """A version of a model.

    Attributes
    ----------
    ranker : TextRanker or another text model
    cost : RankingCost or None
        The estimated cost of ranking; None if it is unknown.
    """

    ranker: BaseTextRanker[Any]
    cost: RankingCost | None

    @cached_property
    def explorer(self) -> Explorer:
        """The explorer for the model, created on first use."""
        return Explorer(self.ranker)

    @cached_property
    def mean_label_bytes(self) -> float:
        """The mean total size of a label's id and name in bytes."""
        labels = self.ranker.label_set_
        names = labels.ids if labels.names is None else labels.names
        return (labels.ids.data.size + names.data.size) / max(1, len(labels))

    @cached_property
    def _label_cache(self) -> dict[int, tuple[str, str]]:
        return {}

    def label(self, number: int) -> tuple[str, str]:
        """Return the id and the name of a label.

        Labels are cached because decoding them takes longer than a lookup.
        """
        label = self._label_cache.get(number)
        if label is None:
            if len(self._label_cache) >= _MAX_CACHED_LABELS:
                self._label_cache.clear()
            labels = self.ranker.label_set_
            label = self._label_cache[number] = (labels.ids[number], labels.name(number))
        return label

    def find_label(self, label: str) -> int:
        """Return the index of the label with this id or name; raise NotFoundError if it does not exist.

        The error message does not suggest similar labels, because searching for them would take too long.
        """
        number = self.ranker.label_set_.index.find(label)
        if number is None:
            raise NotFoundError(f"Unknown label {label[:_MAX_ECHO]!r}.")
        return number


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedFeatureModel(ServedVersion):
    """A version of a model that ranks labels for feature vectors instead of texts.

    Attributes
    ----------
    ranker : XRLinear, NearestNeighbors, Ensemble or Reranked
    """

    ranker: BaseModel[Any]

    @cached_property
    def feature_columns(self) -> dict[str, int] | None:
        """The position of each feature name; None if the features have no names."""
        names = getattr(self.ranker, "feature_names_in_", None)
        return None if names is None else {str(name): column for column, name in enumerate(names)}


@dataclass(frozen=True)
class ReloadFailure:
    """A new version that could not be loaded; the old version remains in use."""

    name: str
    reason: str


@dataclass
class _Slot:
    path: Path
    signature: tuple[int, ...]
    model: ServedModel | ServedFeatureModel | ServedPart
    is_damage_reported: bool = False  # whether a refresh has found that the files of the model were overwritten
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while a new version is loaded


@dataclass
class ModelRegistry:
    """Served models by name.

    Examples
    --------
    >>> import tempfile
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["pet", "barks"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/pets")
    ...     registry = ModelRegistry.open({"pets": f"{folder}/pets"})
    >>> registry.names(), registry.default
    (['pets'], 'pets')
    >>> registry.get().ranker.suggest("a dog", top_k=1)[0].label
    'pet'
    """

    _slots: dict[str, _Slot] = field(default_factory=dict)
    _with_leases: bool = False
    _settings: ServerSettings = field(default_factory=ServerSettings)

    @classmethod
    def open(
        cls,
        folders: Mapping[str, str | os.PathLike[str]],
        settings: ServerSettings | None = None,
        *,
        with_leases: bool = False,
    ) -> ModelRegistry:
        """Load models and parts of models; the first model is the default.

        Raises ModelFormatError or InputError if a model cannot be served.

        Parameters
        ----------
        settings : ServerSettings, optional
            The server settings, which include the addresses of the parts of a split model.
        with_leases : bool
            Whether to make processes that overwrite the files of a model wait until the requests that use the model are
            complete. This requires that `check_files` be called regularly.
        """
        if not folders:
            raise InputError("No models to serve. At least one is required.")
        registry = cls(_with_leases=with_leases, _settings=ServerSettings() if settings is None else settings)
        for name, folder in folders.items():
            if not name or not set(name) <= _NAME_CHARACTERS:
                raise InputError(f"Model names must consist of letters, digits, '_', '-' and '.', got {name!r}.")
            path = Path(folder)
            signature = _file_signature(path)
            registry._slots[name] = _Slot(path, signature, registry._load(name, path))
        if registry._settings.parts is not None and len(registry._routed_models()) != 1:
            raise InputError(
                "Addresses of parts require exactly one split model, but the number of split models is "
                f"{len(registry._routed_models())}. Pass one top folder written by carya split."
            )
        return registry

    def check_files(self) -> None:
        """Check all files for changes, so that a process that overwrites a file does not have to wait for the next
        request.
        """
        for slot in self._slots.values():
            slot.model.guard.is_modified()

    def check_available(self) -> None:
        """Raise an error if a file has been overwritten or a part of a split model is not available.

        Raises ServiceUnavailableError or PartUnavailableError. The check may have to wait for responses from other
        servers.
        """
        for slot in self._slots.values():
            slot.model.check_unmodified()
        for routed in self._routed_models():
            routed.check_parts()

    def _routed_models(self) -> list[RoutedModel]:
        """Return the split models."""
        rankers = [slot.model.ranker for slot in self._slots.values() if not isinstance(slot.model, ServedPart)]
        return [routed for routed in map(routed_model, rankers) if routed is not None]

    def names(self) -> list[str]:
        """Return the names of the models that rank labels for texts."""
        return [name for name, slot in self._slots.items() if isinstance(slot.model, ServedModel)]

    def all_names(self) -> list[str]:
        """Return the names of all models and of the parts of models."""
        return list(self._slots)

    @property
    def default(self) -> str:
        """The name of the default model: the first model that ranks labels for texts, if any."""
        return next(iter(self.names() or self._slots))

    def versions(self) -> dict[str, str]:
        """Return the versions of the models by name."""
        return {name: slot.model.version for name, slot in self._slots.items()}

    def get(self, name: str | None = None) -> ServedModel:
        """Return the current version of a model; raise NotFoundError if the model is unknown.

        Without a name, return the default model.
        """
        slot = self._slots.get(self.default if name is None else name)
        if slot is None:
            models = ", ".join(map(repr, self._slots))
            raise NotFoundError(f"Unknown model {(name or '')[:_MAX_ECHO]!r}. Available models: {models}.")
        if isinstance(slot.model, ServedPart):
            raise NotFoundError(
                f"{slot.model.name!r} is a part of a split model and cannot rank texts. Send texts to a server that "
                "serves the top of the model."
            )
        if isinstance(slot.model, ServedFeatureModel):
            raise NotFoundError(
                f"Model {slot.model.name!r} ranks labels for feature vectors, not for texts. Send the vectors to "
                "/v1/suggest-features."
            )
        return slot.model

    def get_feature_model(self, name: str | None = None) -> ServedFeatureModel:
        """Return the current version of a model that ranks labels for feature vectors, by default the first one.

        Raises NotFoundError if there is no such model.
        """
        models = [slot.model for slot in self._slots.values() if isinstance(slot.model, ServedFeatureModel)]
        found = [model for model in models if name in (None, model.name)]
        if not found:
            names = ", ".join(repr(model.name) for model in models) or "none"
            reason = " It ranks labels for texts; send them to /v1/suggest." if name in self.names() else ""
            raise NotFoundError(
                f"Unknown model over features {(name or '')[:_MAX_ECHO]!r}.{reason} Available models over features: "
                f"{names}."
            )
        return found[0]

    def is_feature_model(self, name: str | None) -> bool:
        """Return whether a model ranks labels for feature vectors; without a name, whether the default model does."""
        slot = self._slots.get(self.default if name is None else name)
        return slot is not None and isinstance(slot.model, ServedFeatureModel)

    def get_part(self, name: str | None = None) -> ServedPart:
        """Return the current version of a part; raise NotFoundError if the part is unknown.

        The name is optional if there is only one part.
        """
        parts = [slot.model for slot in self._slots.values() if isinstance(slot.model, ServedPart)]
        found = [part for part in parts if name in (None, part.name)]
        if len(found) != 1:
            names = ", ".join(repr(part.name) for part in parts) or "none"
            raise NotFoundError(f"Unknown part {(name or '')[:_MAX_ECHO]!r}. Available parts: {names}.")
        return found[0]

    def refresh(self, *, force: bool = False) -> list[ServedVersion | ReloadFailure]:
        """Call `refresh_model` for all models; return the new versions and the failures."""
        results = [self.refresh_model(name, force=force) for name in self.all_names()]
        return [result for result in results if result is not None]

    def refresh_model(self, name: str, *, force: bool = False) -> ServedVersion | ReloadFailure | None:
        """Load a model if its folder has changed; return the new version, the failure, or None.

        If a folder is missing or incomplete, the old version remains in use, unless its files have been overwritten. A
        folder that does not contain a valid model is loaded again only after it has changed; after other failures,
        every call tries to load it again.

        Parameters
        ----------
        force : bool
            Whether to load the model even if its folder has not changed.
        """
        slot = self._slots[name]
        with slot.lock:
            signature = _file_signature(slot.path)
            is_intact = slot.model.guard.verify_sample()
            is_known = signature == slot.signature and (is_intact or slot.is_damage_reported)
            if not signature or (is_known and not force):
                return None
            result: ServedVersion | ReloadFailure | None = None
            try:
                model = self._load(name, slot.path)
                storage.load(slot.path)  # verifies all checksums: a damaged model must not replace a valid one
                if _read_version(slot.path)[0] != model.version:
                    return None  # replaced in the meantime, so a different version was verified; load it next time
            except (ModelFormatError, InputError) as error:
                result = ReloadFailure(name, str(error))
            except Exception as error:  # such as a MemoryError or OSError, which may be temporary
                return ReloadFailure(name, f"{type(error).__name__}: {error}")
            else:
                if model.version != slot.model.version or not is_intact:
                    slot.model = result = model  # atomic: each request uses either the old or the new version
                    is_intact = True
            slot.signature = signature
            slot.is_damage_reported = not is_intact
            return result

    def _load(self, name: str, folder: Path) -> ServedModel | ServedFeatureModel | ServedPart:
        for _ in range(3):
            version, modified = _read_version(folder)
            guard = ArrayFileGuard(folder, with_lease=self._with_leases)
            ranker = carya.load(folder)
            if isinstance(ranker, ModelPart):
                ranker.n_jobs = 1  # the server processes requests in parallel
                return ServedPart(name=name, version=version, modified=modified, guard=guard, part=ranker)
            if isinstance(ranker, BaseModel):
                set_in_all(ranker, n_jobs=1, verbose=False)
                _connect_if_routed(ranker, folder, self._settings)
                return ServedFeatureModel(name=name, version=version, modified=modified, guard=guard, ranker=ranker)
            if not isinstance(ranker, BaseTextRanker):
                raise InputError(
                    f"Only models can be served, but {folder} contains an object of type {type(ranker).__name__}. "
                    "Train a model with: carya train DATA -o MODEL"
                )
            if ranker.needs_features:
                raise InputError(
                    f"The model in {folder} was trained with user-supplied features, which requests do not contain. "
                    "Use a model that requires only texts."
                )
            if (version, modified) == _read_version(folder):  # otherwise, the folder was replaced during loading
                break
        ranker.use_one_thread()  # the server processes requests in parallel
        if not _connect_if_routed(ranker, folder, self._settings):
            # Rank a batch, so that no request waits for lazy initialization.
            ranker.rank_texts(["a first text"] * 16)
        cost = RankingCost.measure(ranker)
        return ServedModel(name=name, version=version, modified=modified, guard=guard, ranker=ranker, cost=cost)


def _connect_if_routed(ranker: Any, folder: Path, settings: ServerSettings) -> bool:
    """Connect the parts of a model if it is split; return whether it is."""
    routed = routed_model(ranker)
    if routed is not None:
        _connect_parts(routed, folder, settings)
    return routed is not None


def _connect_parts(routed: RoutedModel, folder: Path, settings: ServerSettings) -> None:
    """Connect the parts of a split model.

    The servers that serve the parts may start later; the readiness check reports whether they are available.
    """
    if settings.parts is not None:
        routed.connect(settings.parts, timeout=settings.part_timeout, token=settings.part_token, check=False)
        return
    local = [folder.parent / f"part-{number}" for number in range(routed.n_parts_)]
    if not all(part.is_dir() for part in local):
        raise InputError(
            f"{folder} is the top of a split model with {len(local)} parts, but {folder.parent} does not contain all "
            "of these parts. Pass the URLs of the servers that serve the parts: --part URL, once per part."
        )
    routed.connect(local)


def _file_signature(folder: Path) -> tuple[int, ...]:
    """Return a tuple that changes whenever the files of a model change, or an empty tuple if there is no model."""
    signature: tuple[int, ...] = ()
    try:
        for name in ("manifest.json", "arrays.bin"):
            status = (folder / name).stat()
            signature += status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    except OSError:
        return ()
    return signature


def _read_version(folder: Path) -> tuple[str, datetime]:
    try:
        text = storage.read_manifest(folder)
        modified = int((folder / "manifest.json").stat().st_mtime)
        return str(json.loads(text)["checksum"]), datetime.fromtimestamp(modified, UTC)
    except ModelFormatError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"{folder} is not a Carya model: {error}") from None
