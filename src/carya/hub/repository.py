"""Upload models to repositories on the Hugging Face Hub, and download them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carya.core.extras import require
from carya.errors import InputError
from carya.hub.card import CardDetails, model_card
from carya.loading import load

_CARD = "README.md"


def push_to_hub(
    model: Any,
    repo_id: str,
    *,
    description: str | None = None,
    data: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
    license: str | None = None,  # noqa: A002
    language: str | Sequence[str] | None = None,
    private: bool = False,
    revision: str | None = None,
    commit_message: str = "Upload a Carya model",
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Upload a fitted model with a generated model card to the Hugging Face Hub.

    Parameters
    ----------
    model : fitted model or path
        A model of any kind, or the folder of a saved model.
    repo_id : str
        The repository, such as "user/model"; it is created if it does not exist.
    description, data, evaluation, license, language
        Contents of the model card: the purpose of the model, its training data, its metrics on test data (as computed
        by :func:`carya.metrics.report` or ``carya evaluate --json``), its license and the languages of its texts.
    private : bool, default=False
        Whether a new repository is private.
    revision : str, optional
        The branch to upload to; the main branch by default.
    commit_message : str, optional
    token : str, optional
        Access token; by default, the one stored by ``hf auth login`` or in the environment variable HF_TOKEN.
    endpoint : str, optional
        The address of the Hub or of a mirror; by default, the value of the environment variable HF_ENDPOINT, or
        https://huggingface.co.

    Returns
    -------
    str
        The address of the commit.

    Raises
    ------
    InputError
        If the Hub rejects the upload or cannot be reached.
    MissingExtraError
        If the package `huggingface_hub` is not installed.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(300, 30, seed=0)
    >>> model = carya.XRLinear().fit(X, Y)
    >>> carya.push_to_hub(model, "user/model", license="apache-2.0")  # doctest: +SKIP
    'https://huggingface.co/user/model/commit/5f1f…'
    """
    hub = require("huggingface_hub", extra="hub", purpose="push_to_hub")
    is_path = isinstance(model, (str, os.PathLike))
    loaded = load(model) if is_path else model
    card = model_card(loaded, repo_id, CardDetails(description, data, evaluation, license, language))
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="carya")
    with tempfile.TemporaryDirectory(prefix="carya-hub-") as folder:
        source = Path(model) if is_path else Path(folder) / "model"
        if not is_path:
            loaded.save(source)
        operations = [
            hub.CommitOperationAdd(path.relative_to(source).as_posix(), path)
            for path in sorted(source.rglob("*"))
            if path.is_file() and path.relative_to(source).as_posix() != _CARD
        ]
        operations.append(hub.CommitOperationAdd(_CARD, card.encode()))
        with _reporting(hub, repo_id, "uploaded to"):
            api.create_repo(repo_id, private=private, exist_ok=True)
            commit = api.create_commit(repo_id, operations, commit_message=commit_message, revision=revision)
    return str(commit.commit_url)


def from_pretrained(
    repo_id: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_files_only: bool = False,
    endpoint: str | None = None,
) -> Any:
    """Load a model from the Hugging Face Hub, or from a folder.

    Models contain neither code nor pickles, so loading a model from an untrusted source does not execute any code.

    Parameters
    ----------
    repo_id : str or path-like
        A repository, such as "user/model", or an existing folder, which is passed to :func:`carya.load`.
    revision : str, optional
        A branch, a tag or a commit; the main branch by default.
    token : str, optional
        Access token for private repositories; by default, the one stored by ``hf auth login`` or in the environment
        variable HF_TOKEN.
    cache_dir : path, optional
        Folder for downloaded files; by default, the cache of `huggingface_hub`.
    local_files_only : bool, default=False
        Use only files that are already in the cache.
    endpoint : str, optional
        The address of the Hub or of a mirror; by default, the value of the environment variable HF_ENDPOINT, or
        https://huggingface.co.

    Returns
    -------
    fitted model
        A model of any kind, as returned by :func:`carya.load`.

    Raises
    ------
    InputError
        If the repository or the revision does not exist, or if the Hub cannot be reached.
    ModelFormatError
        If the repository does not contain a Carya model.
    MissingExtraError
        If the package `huggingface_hub` is not installed.

    Examples
    --------
    >>> import carya
    >>> model = carya.from_pretrained("user/model")  # doctest: +SKIP
    """
    if Path(repo_id).is_dir():
        return load(repo_id)
    hub = require("huggingface_hub", extra="hub", purpose="from_pretrained")
    with _reporting(hub, str(repo_id), "downloaded from"):
        folder = hub.snapshot_download(
            str(repo_id),
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            endpoint=endpoint,
            library_name="carya",
        )
    return load(folder)


@contextmanager
def _reporting(hub: Any, repo_id: str, action: str) -> Iterator[None]:
    """Convert errors from the Hub to an InputError that names the repository."""
    try:
        yield
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = " ".join(lines[:2]) or type(error).__name__
        raise InputError(f"{repo_id} cannot be {action} the Hugging Face Hub: {message}") from error
