"""`carya.tune`: search for better settings for a data set within a time budget."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carya import _core
from carya.core import rules
from carya.core.extras import require
from carya.core.inputs.columns import is_table, is_tensor
from carya.core.inputs.texts import TEXT_COLUMN, TextsLike
from carya.data.corpus import Matrices
from carya.errors import InputError, ParameterError, SaveError
from carya.models.training_data import TrainingData
from carya.text.inputs import checked_list_of_texts, split_corpus
from carya.text.labels import LabelSet, training_labels
from carya.tuning.budget import Budget, parse_duration
from carya.tuning.held_out import HeldOutData
from carya.tuning.language import guess_language
from carya.tuning.options import MODELS, RULES
from carya.tuning.recipe import Recipe
from carya.tuning.results import TunedTrial, Tuning
from carya.tuning.search import Search, rungs_of
from carya.tuning.space import Space, available_models
from carya.tuning.workers.actors import ClusterWorkers, TrialEngine
from carya.tuning.workers.interface import Workers
from carya.tuning.workers.processes import WorkerProcesses

_SAMPLE = 1_000
_RESERVED = 0.02  # share of the budget reserved for stopping the workers and writing the results
_MAX_WORKERS = 4


def tune(
    data: TextsLike | Matrices,
    labels: Any = None,
    *,
    budget: str | float = "10m",
    metric: str = "P@1",
    names: Mapping[str, str] | None = None,
    label_texts: Mapping[str, str] | None = None,
    models: Sequence[str] = MODELS,
    stemmers: Sequence[str] | None = None,
    validation_fraction: float = 0.15,
    max_trials: int | None = None,
    max_latency: float | None = None,
    max_bytes: int | None = None,
    n_parallel: int | None = None,
    n_jobs: int = -1,
    seed: int = 0,
    observe: Callable[[Search], None] | None = None,
    engine: TrialEngine | None = None,
    work_dir: str | os.PathLike[str] | None = None,
) -> Tuning:
    """Search for settings that perform better than the defaults, within a time budget.

    Some of the rows are held out for validation. The search starts with a few configurations that often perform well,
    and continues with configurations proposed by Optuna. All of them are first trained on few rows; the best ones are
    then trained on more rows. Trials run in worker processes and share features and label trees. In a script, call this
    function inside an ``if __name__ == "__main__":`` block.

    The result does not contain a trained model: ``tuning.recipe.build()`` returns the unfitted model, to be trained on
    all rows. Requires the extra ``tune``.

    Parameters
    ----------
    data : texts or features
        Texts, as for :meth:`carya.TextRanker.fit`, or features, as for :meth:`carya.XRLinear.fit`.
    labels : labels, optional
        The labels of the rows; not needed for a Corpus, a table with labels, or Matrices.
    budget : str or float
        The time budget of the search, as a duration such as ``"90s"`` or ``"10m"``, or as a number of seconds.
    metric : str
        The metric to maximize: P@1, P@3, P@5, mean-P (the mean of P@1, P@3 and P@5), nDCG@1, nDCG@3, nDCG@5, R@5 or
        F1@5.
    names, label_texts : mapping of str to str, optional
        As for :meth:`carya.TextRanker.fit`.
    models : list of str
        The model kinds to try: trees (one tree or an ensemble), accurate and neural (rerankers), and neighbors.
    stemmers : list of str, optional
        The languages of the stemmers to try; by default, the language of the texts, if it can be detected.
    validation_fraction : float
        The fraction of the rows to hold out for validation; at most 6,000 rows are held out.
    max_trials : int, optional
        The maximum number of configurations to try.
    max_latency : float, optional
        The maximum single-query latency of the selected model, in microseconds on one thread.
    max_bytes : int, optional
        The maximum size of the selected model, in bytes.
    n_parallel : int, optional
        The number of trials to run in parallel; by default, one per two threads, but at most 4.
    n_jobs : int
        The total number of threads; -1 means all cores.
    seed : int
        The seed of the search and of all models. With ``n_parallel=1``, runs that finish the same trials give identical
        results.
    observe : callable, optional
        Called several times per second with the :class:`carya.tuning.search.Search`, to show its progress.
    engine : RayEngine, optional
        The cluster on which to run the trials; requires `work_dir`. By default, one trial runs for each
        `threads_per_task` CPUs of the cluster; `n_jobs` is not used.
    work_dir : path, optional
        The folder in which a temporary folder for the data and the features is created; with an engine, it must be on
        storage that all machines share.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["a fast web server", "a photo editor"] * 50, [["net"], ["graphics"]] * 50
    >>> tuning = carya.tune(texts, labels, budget="1m", max_trials=2, models=["trees"], n_parallel=1)
    >>> ranker = tuning.recipe.build().fit(texts, labels)
    >>> ranker.suggest("a web server", top_k=1)[0].label
    'net'
    """
    given = {name: value for name, value in locals().items() if name in RULES}
    for name, value in given.items():
        rules.check(name, value, RULES[name])
    _check_names("models", models, MODELS)
    require("optuna", extra="tune", purpose="Tuning")  # checked before the data is read
    n_workers, threads = _check_engine(engine, work_dir, n_parallel, n_jobs)
    clock = Budget(parse_duration(budget) * (1 - _RESERVED))
    folder = _create_folder(work_dir)
    try:
        stored = _store(folder, data, labels, names, label_texts, validation_fraction, seed)
        space = _space(stored, models, stemmers, seed)
        rungs = rungs_of(stored.train.size)
        search = Search(space, rungs, metric=metric, budget=clock, max_trials=max_trials, seed=seed, observe=observe)
        with _start_workers(engine, folder, space, n_workers, threads) as workers:
            try:
                search.run(workers)
            except KeyboardInterrupt:  # the best settings so far are returned
                if not any(trial.measured is not None for trial in search.trials):
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    best = _best(search, max_latency, max_bytes)
    recipes = {
        attempt.number: Recipe(space.build(attempt.point), _measured_values(search, attempt.number))
        for attempt in search.attempts
    }
    default = next((trial for trial in reversed(search.trials) if trial.number == 0 and trial.measured), None)
    return Tuning(
        recipes[best.number],
        best,
        default,
        search.trials,
        metric,
        clock.elapsed,
        int(stored.train.size),
        int(stored.validation.size),
        search.cache_hits,
        search.cache_misses,
        recipes,
    )


def _check_engine(engine: TrialEngine | None, work_dir: object, n_parallel: int | None, n_jobs: int) -> tuple[int, int]:
    """Return the number of workers and the number of threads per worker."""
    if engine is None:
        threads = _core.thread_count(n_jobs)
        n_workers = min(_MAX_WORKERS, max(1, threads // 2)) if n_parallel is None else n_parallel
        return n_workers, max(1, threads // n_workers)
    if not hasattr(engine, "open_pool"):
        raise InputError(f"engine must be an engine such as carya.RayEngine, or None, got {engine!r}.")
    if work_dir is None:
        raise ParameterError("engine requires work_dir, a folder that all machines share.")
    engine.check_dependencies()
    n_available = engine.count_workers()
    return min(n_available, n_parallel or n_available), engine.threads_per_task


def _create_folder(work_dir: str | os.PathLike[str] | None) -> Path:
    """Create a temporary folder, in `work_dir` if it is given."""
    try:
        if work_dir is not None:
            Path(work_dir).mkdir(parents=True, exist_ok=True)
        parent = None if work_dir is None else Path(work_dir).absolute()
        return Path(tempfile.mkdtemp(prefix="carya-tune-", dir=parent))
    except OSError as error:
        raise SaveError(f"Cannot create a folder in {work_dir or tempfile.gettempdir()}: {error.strerror}.") from None


def _start_workers(engine: TrialEngine | None, folder: Path, space: Space, n_workers: int, threads: int) -> Workers:
    if engine is None:
        return WorkerProcesses(folder, space, n_workers=n_workers, threads=threads)
    return ClusterWorkers(engine, folder, space, n_workers=n_workers)


def _store(
    folder: Path,
    data: Any,
    labels: Any,
    names: Mapping[str, str] | None,
    label_texts: Mapping[str, str] | None,
    validation_fraction: float,
    seed: int,
) -> HeldOutData:
    """Validate the data, and write it to a folder."""
    options: dict[str, Any] = {"validation_fraction": validation_fraction, "seed": seed}
    if _is_features(data):
        if names is not None or label_texts is not None:
            raise InputError("names and label_texts require texts, but the data contains features.")
        checked = TrainingData.of(data, labels)
        return HeldOutData.store(folder, features=checked.features, labels=checked.labels, **options)
    texts, labels, own_names = split_corpus(data, labels)
    rows = checked_list_of_texts(texts)  # also reads the labels of a corpus
    Y, ids = training_labels(labels)
    if len(rows) != Y.rows:
        raise InputError(f"texts and labels must have the same length, got {len(rows)} and {Y.rows}.")
    if not ids:
        raise InputError("No text has a label. At least one label is required.")
    label_set = LabelSet.of(ids, own_names if names is None else names, label_texts)
    described = label_set.texts or label_set.names or label_set.ids
    return HeldOutData.store(folder, texts=rows, labels=Y, label_texts=described, **options)


def _is_features(data: Any) -> bool:
    """Return whether the data contains features rather than texts."""
    if is_table(data):
        return TEXT_COLUMN not in list(getattr(data, "column_names", None) or data.columns)
    is_pair = isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, str) for part in data)
    is_matrix = hasattr(data, "tocsr") or is_tensor(data) or (isinstance(data, np.ndarray) and data.ndim == 2)
    return isinstance(data, Matrices) or is_pair or is_matrix


def _space(data: HeldOutData, models: Sequence[str], stemmers: Sequence[str] | None, seed: int) -> Space:
    """Return the search space for a data set."""
    kinds = available_models(models, data.labels.cols)
    if not kinds:
        raise ParameterError("models=['accurate'] requires lightgbm. Install it with: pip install 'carya[gbdt]'")
    if data.texts is None:
        return Space(False, models=kinds, seed=seed)
    sample = data.texts[:_SAMPLE]
    if stemmers is None:
        language = guess_language(sample)
        stemmers = [] if language is None or not _has_stemmer() else [language]
    else:
        from carya.text.tfidf import Tfidf

        for stemmer in stemmers:
            tfidf = Tfidf(stemmer=stemmer)
            tfidf.check_parameters()
            tfidf.check_dependencies()
    length = sum(map(len, sample)) / len(sample)
    return Space(True, length, tuple(stemmers), kinds, seed=seed)


def _has_stemmer() -> bool:
    import importlib.util

    return importlib.util.find_spec("snowballstemmer") is not None


def _best(search: Search, max_latency: float | None, max_bytes: int | None) -> TunedTrial:
    """Among the trials that satisfy the limits and have the most training rows, return the one with the best metric."""
    measured = [trial for trial in search.trials if trial.measured is not None]
    if not measured:
        reason = next((trial.error for trial in search.trials if trial.error), "the budget was too small")
        raise InputError(f"No trial has finished: {reason}. Increase the budget, or pass less data.")
    within = [
        trial
        for trial in measured
        if trial.measured is not None
        and (max_latency is None or trial.measured.microseconds <= max_latency)
        and (max_bytes is None or trial.measured.n_bytes <= max_bytes)
    ]
    if not within:
        raise InputError(
            "No trial satisfies max_latency and max_bytes. Increase these limits, or increase the budget so that more "
            "settings are tried."
        )
    return max(within, key=lambda trial: (trial.n_rows, trial.measured and search.value(trial.measured), -trial.number))


def _measured_values(search: Search, number: int) -> dict[str, Any]:
    """Return the results to store in a configuration's recipe: those measured with the most training rows."""
    trial = next((trial for trial in reversed(search.trials) if trial.number == number and trial.measured), None)
    if trial is None or trial.measured is None:
        return {}
    return {
        **{name: round(value, 6) for name, value in trial.measured.metrics.items()},
        "rows": trial.n_rows,
        "microseconds": round(trial.measured.microseconds, 1),
        "bytes": trial.measured.n_bytes,
        "seconds": round(trial.measured.seconds, 3),
    }


def _check_names(name: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    if isinstance(given, str) or not given or not set(given) <= set(allowed):
        raise ParameterError(f"{name} must be a non-empty list of these values: {', '.join(allowed)}; got {given!r}.")
