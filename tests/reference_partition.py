"""NumPy reference implementation of recursive partitioning that draws the same random numbers as the native code."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypedDict, Unpack

import numpy as np

_MASK = (1 << 64) - 1
# Features that occur in only one label of a group are dropped if the group has fewer than _ENTRIES_PER_FEATURE entries
# per feature, and if its number of labels has shrunk to at most 1/_SHRINKAGE since features were last dropped.
_ENTRIES_PER_FEATURE = 16
_SHRINKAGE = 3
_LABELS_PER_SAMPLE = 16


class KMeansOptions(TypedDict):
    """Options of k-means for all splits.

    If `balanced` is True, the sizes of the parts of a split differ by at most one. Iteration stops when at most a
    fraction `min_moved` of the members move. If a group has at least twice `sample_size` members, the centers for a
    bisection are first estimated on a sample.
    """

    max_iter: int
    min_moved: float
    sample_size: int
    spherical: bool
    balanced: bool


class Random:
    """SplitMix64 random number generator with one stream per (seed, a, b)."""

    def __init__(self, seed: int, a: int, b: int) -> None:
        self.state = seed & _MASK
        self.state = self.next() ^ (a * 0xD1342543DE82EF95 & _MASK)
        self.state = self.next() ^ (b * 0xAF251AF3B0F025B5 & _MASK)

    def next(self) -> int:
        """Return the next 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """Return a random integer in [0, bound)."""
        return (self.next() >> 32) * bound >> 32


class Group:
    """The labels in a cluster and their feature vectors, possibly without features that occur in only one label."""

    def __init__(self, labels: np.ndarray, sparse: np.ndarray, dense: np.ndarray, stored: int) -> None:
        self.labels, self.sparse, self.dense, self.stored = labels, sparse, dense, stored

    @classmethod
    def whole(cls, sparse: np.ndarray, dense: np.ndarray) -> Group:
        """Return the group that contains all labels."""
        return cls(np.arange(len(sparse)), _shared(sparse), dense, len(sparse))

    def part(self, members: np.ndarray) -> Group:
        """Return a subgroup; features that occur in only one label may be dropped (see _ENTRIES_PER_FEATURE)."""
        sparse, stored = self.sparse[members], self.stored
        is_sparse = np.count_nonzero(sparse) < _ENTRIES_PER_FEATURE * sparse.shape[1]
        if is_sparse and _SHRINKAGE * len(members) <= stored:
            sparse, stored = _shared(sparse), len(members)
        return Group(self.labels[members], sparse, self.dense[members], stored)

    @property
    def rows(self) -> np.ndarray:
        """The feature vectors of the labels."""
        return np.hstack([self.sparse, self.dense])


def _shared(sparse: np.ndarray) -> np.ndarray:
    return sparse[:, np.count_nonzero(sparse, axis=0) > 1]


def centers_of(rows: np.ndarray, side: np.ndarray, parts: int, spherical: bool) -> np.ndarray:
    """Return the center of each part; members with ``side == parts`` are not yet assigned."""
    sums = np.stack([rows[side == part].sum(axis=0) for part in range(parts)])
    length = np.linalg.norm(sums, axis=1) if spherical else np.bincount(side[side < parts], minlength=parts)
    return sums / np.where(length > 0, length, 1)[:, None]


def similarity(rows: np.ndarray, centers: np.ndarray, spherical: bool) -> np.ndarray:
    """Return the similarity of each member to each center: the cosine, or a score that decreases with the distance."""
    scores: np.ndarray = rows @ centers.T
    return scores if spherical else scores - 0.5 * (centers**2).sum(axis=1)


def balanced_in_two(score: np.ndarray, first: int) -> np.ndarray:
    """Assign the `first` members with the strongest preference for part 0 to part 0, and the others to part 1."""
    side = np.ones(len(score), int)
    side[np.argsort(score[:, 1] - score[:, 0], kind="stable")[:first]] = 0
    return side


def balanced_in_many(score: np.ndarray) -> np.ndarray:
    """Assign members, in order of decreasing margin, to the most similar part with free capacity."""
    size, parts = score.shape
    best = np.sort(score, axis=1)[:, ::-1]
    larger_parts, filled = size % parts, [0] * parts
    side = np.empty(size, int)
    for m in np.argsort(-(best[:, 0] - best[:, 1]), kind="stable"):
        free = [p for p in range(parts) if filled[p] < size // parts + (larger_parts > 0)]
        side[m] = max(free, key=lambda part: (score[m, part], -part))
        larger_parts -= filled[side[m]] == size // parts
        filled[side[m]] += 1
    return side


def k_means(
    rows: np.ndarray,
    side: np.ndarray,
    parts: int,
    assign: Callable[[np.ndarray], np.ndarray],
    **options: Unpack[KMeansOptions],
) -> np.ndarray:
    """Alternate between computing centers and assigning members; initially, only the seeds are assigned."""
    centers = centers_of(rows, side, parts, options["spherical"])
    return iterate(rows, centers, assign, options["max_iter"], **options)[0]


def iterate(
    rows: np.ndarray,
    centers: np.ndarray,
    assign: Callable[[np.ndarray], np.ndarray],
    iterations: int,
    **options: Unpack[KMeansOptions],
) -> tuple[np.ndarray, np.ndarray]:
    """Run k-means from the given centers; return the part of each member and the final centers."""
    side = np.full(len(rows), len(centers))
    for iteration in range(iterations):
        assigned = assign(similarity(rows, centers, options["spherical"]))
        moved = len(rows) if iteration == 0 else np.count_nonzero(assigned != side)
        side = assigned
        centers = centers_of(rows, side, len(centers), options["spherical"])
        if moved <= options["min_moved"] * len(rows):
            break
    return side, centers


def bisect_group(group: Group, share: float, random: Random, **options: Unpack[KMeansOptions]) -> np.ndarray:
    """Split a group in two; if balanced, the first part receives the given share of the members."""
    size = len(group.labels)
    seed, other_seed = random.below(size), random.below(size - 1)
    side = np.full(size, 2)
    side[seed], side[other_seed + (other_seed >= seed)] = 0, 1
    centers = centers_of(group.rows, side, 2, options["spherical"])

    def assign(score: np.ndarray) -> np.ndarray:
        nearer = (score[:, 1] > score[:, 0]).astype(int)
        one_sided = nearer.min() == nearer.max()
        first = min(max(int(share * len(score) + 0.5), 1), len(score) - 1)
        return balanced_in_two(score, first) if options["balanced"] or one_sided else nearer

    iterations = options["max_iter"]
    if size >= 2 * options["sample_size"]:
        count = max(options["sample_size"], size // _LABELS_PER_SAMPLE)
        bounds = [size * i // count for i in range(count + 1)]
        sample = [first + random.below(last - first) for first, last in itertools.pairwise(bounds)]
        _, centers = iterate(group.rows[sample], centers, assign, iterations, **options)
    return iterate(group.rows, centers, assign, iterations, **options)[0]


def split_group(group: Group, parts: int, random: Random, **options: Unpack[KMeansOptions]) -> np.ndarray:
    """Split a group directly into several parts."""
    size = len(group.labels)
    seeds = list(range(size))
    for i in range(size, 1, -1):
        j = random.below(i)
        seeds[i - 1], seeds[j] = seeds[j], seeds[i - 1]
    side = np.full(size, parts)
    side[seeds[:parts]] = np.arange(parts)
    assign = balanced_in_many if options["balanced"] else lambda score: score.argmax(axis=1)
    side = k_means(group.rows, side, parts, assign, **options)
    if not options["balanced"] and side.min() == side.max():
        side = np.arange(size) * parts // size
    return side


def partition(
    sparse: np.ndarray,
    dense: np.ndarray,
    branching: list[int],
    *,
    bisect: bool,
    stop_size: int,
    seed: int,
    **options: Unpack[KMeansOptions],
) -> list[np.ndarray]:
    """Return the cluster of each label at each level."""
    levels: list[np.ndarray] = []
    clusters = [Group.whole(sparse, dense)]
    for level, parts in enumerate(branching):
        sizes = [len(group.labels) for group in clusters]
        pieces = [
            (group, 1 if size <= stop_size else min(parts, size)) for group, size in zip(clusters, sizes, strict=True)
        ]
        if all(n_parts == 1 for _, n_parts in pieces):
            break
        step = 0
        while any(n_parts > 1 for _, n_parts in pieces):
            split: list[tuple[Group, int]] = []
            for group, n_parts in pieces:
                if n_parts == 1:
                    split.append((group, n_parts))
                    continue
                random = Random(seed, level << 40 | step << 32 | int(group.labels[0]), 1)
                if bisect:
                    shares = [n_parts // 2, n_parts - n_parts // 2]
                    side = bisect_group(group, shares[0] / n_parts, random, **options)
                else:
                    shares = [1] * n_parts
                    side = split_group(group, n_parts, random, **options)
                for part, share in enumerate(shares):
                    members = np.flatnonzero(side == part)
                    if members.size:
                        split.append((group.part(members), min(share, members.size)))
            pieces, step = split, step + 1
        clusters = [group for group, _ in pieces]
        clusters_of_labels = np.empty(len(sparse), int)
        for c, group in enumerate(clusters):
            clusters_of_labels[group.labels] = c
        levels.append(clusters_of_labels)
    return levels
