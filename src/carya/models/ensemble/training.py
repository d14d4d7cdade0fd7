"""Train ensemble members; trees with the same features are trained together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from carya.core.matrices import Features
from carya.indexing import RepresentationCache
from carya.models.training_data import TrainingData
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.training import train_trees

T = TypeVar("T")
U = TypeVar("U")

_TREES_AT_ONCE = 4  # training more trees at the same time would increase the memory usage without saving time


def fit_members(members: Sequence[Any], features: Sequence[Features], data: TrainingData) -> None:
    """Train every member on its own features; `data` contains all other inputs.

    Trees with the same features and solver settings share label representations and are trained together.
    """
    groups: dict[tuple[object, ...], tuple[TrainingData, list[XRLinear]]] = {}
    for member, own_features in zip(members, features, strict=True):
        member.check_parameters()
        own_data = data.for_member(member, own_features)
        if isinstance(member, XRLinear):
            solver = member.linear_solver()
            inputs = member.uses_label_features, member.uses_label_graph, member.uses_shortlist, member.uses_tree
            rare = member.tail_weight, member.label_row_weight, member.relevance
            machine = member.n_jobs, member.verbose, member.checkpoint_dir, member.memory
            key = (id(own_features), solver, rare, machine, inputs)
            groups.setdefault(key, (own_data, []))[1].append(member)
        else:
            member.fit_data(own_data)
    for own_data, trees in groups.values():
        cache: RepresentationCache = {}
        for first in range(0, len(trees), _TREES_AT_ONCE):
            together = trees[first : first + _TREES_AT_ONCE]
            for tree, trained in zip(together, train_trees(together, own_data, cache=cache), strict=True):
                tree.set_fitted(trained)


def map_distinct(items: Sequence[T], function: Callable[[T], U]) -> list[U]:
    """Apply a function to each item; objects that occur several times are processed only once."""
    results: dict[int, U] = {}
    for item in items:
        if id(item) not in results:
            results[id(item)] = function(item)
    return [results[id(item)] for item in items]
