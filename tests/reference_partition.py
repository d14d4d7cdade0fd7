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
# Features that occur in fewer labels than 1/_RARE_FRACTION of the group do not affect its splits.
_RARE_FRACTION = 1024
_MAX_LEVELS = 3  # levels of bisections that are optimized together


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

    def split(self) -> Random:
        """Return a new generator that is seeded with the next number."""
        other = Random.__new__(Random)
        other.state = self.next()
        return other

    def below(self, bound: int) -> int:
        """Return a random integer in [0, bound)."""
        return (self.next() >> 32) * bound >> 32


class Group:
    """The labels in a cluster and their feature vectors, possibly without features that occur in only one label."""

    def __init__(
        self, labels: np.ndarray, sparse: np.ndarray, dense: np.ndarray, stored: int, frequent: np.ndarray
    ) -> None:
        self.labels, self.sparse, self.dense, self.stored, self.frequent = labels, sparse, dense, stored, frequent

    @classmethod
    def whole(cls, sparse: np.ndarray, dense: np.ndarray) -> Group:
        """Return the group that contains all labels."""
        return cls(np.arange(len(sparse)), *_store(sparse, dense))

    def part(self, members: np.ndarray) -> Group:
        """Return a subgroup; features that occur in only one label may be dropped (see _ENTRIES_PER_FEATURE)."""
        sparse, dense = self.sparse[members], self.dense[members]
        is_sparse = np.count_nonzero(sparse) < _ENTRIES_PER_FEATURE * sparse.shape[1]
        if is_sparse and _SHRINKAGE * len(members) <= self.stored:
            return Group(self.labels[members], *_store(sparse, dense))
        return Group(self.labels[members], sparse, dense, self.stored, self.frequent)

    @property
    def rows(self) -> np.ndarray:
        """The feature vectors of the labels, without rare features."""
        return np.hstack([self.sparse[:, self.frequent], self.dense])


def _store(sparse: np.ndarray, dense: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Drop features that occur in only one label, and mark the frequent features."""
    least = 1 << (max(2, len(sparse) // _RARE_FRACTION) - 1).bit_length()
    counts = np.count_nonzero(sparse, axis=0)
    sparse, counts = sparse[:, counts > 1], counts[counts > 1]
    return sparse, dense, len(sparse), counts >= least


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
        _, centers = iterate(group.rows[_sample(size, count, random)], centers, assign, iterations, **options)
    return iterate(group.rows, centers, assign, iterations, **options)[0]


def _sample(size: int, count: int, random: Random) -> list[int]:
    bounds = [size * i // count for i in range(count + 1)]
    return [first + random.below(last - first) for first, last in itertools.pairwise(bounds)]


def _first_size(clusters: tuple[int, int], size: int) -> int:
    """Return the number of members of the first child of a node whose children will have this many clusters."""
    if clusters[1] == 0 or size < 2:
        return size
    return min(max(int(clusters[0] / sum(clusters) * size + 0.5), 1), size - 1)


def _split_tree(n_clusters: int) -> list[int]:
    """Return the number of clusters of each node of a binary tree, whose nodes are numbered as in a heap."""
    parts = min(1 << _MAX_LEVELS, 1 << (n_clusters - 1).bit_length())
    clusters = [0, n_clusters]
    for node in range(1, parts):
        first = max(clusters[node] // 2, min(clusters[node], 1))
        clusters += [first, clusters[node] - first]
    return clusters


def bisect_repeatedly(
    group: Group, n_clusters: int, random: Random, **options: Unpack[KMeansOptions]
) -> tuple[np.ndarray, list[int]]:
    """Split a group into up to eight parts; return the part of each member and the number of clusters per part."""
    clusters = _split_tree(n_clusters)
    parts, size = len(clusters) // 2, len(group.labels)
    count = max(options["sample_size"] // 4, size // _LABELS_PER_SAMPLE, parts)
    if count >= size:
        return _bisect_in_turn(group, np.arange(size), clusters, random, **options), clusters[parts:]
    sample = np.array(_sample(size, count, random))
    part = _bisect_in_turn(group, sample, clusters, random, **options)
    sums = np.stack([group.rows[sample][part == p].sum(axis=0) for p in range(parts)])
    counts = np.bincount(part, minlength=parts)
    part = np.full(size, -1)
    for _ in range(options["max_iter"]):
        next_part = _assign_parts(group.rows, sums, counts, clusters, options["spherical"])
        moved = np.count_nonzero(next_part != part)
        part = next_part
        sums = np.stack([group.rows[part == p].sum(axis=0) for p in range(parts)])
        counts = np.bincount(part, minlength=parts)
        if moved <= options["min_moved"] * size * (parts.bit_length() - 1):
            break
    return part, clusters[parts:]


def _bisect_in_turn(
    group: Group, members: np.ndarray, clusters: list[int], random: Random, **options: Unpack[KMeansOptions]
) -> np.ndarray:
    """Split the members one node at a time, depth first."""
    part = np.zeros(len(members), int)
    n_parts = len(clusters) // 2

    def split(node: int, chosen: np.ndarray) -> None:
        if node >= n_parts:
            part[chosen] = node - n_parts
            return
        children = (clusters[2 * node], clusters[2 * node + 1])
        if _first_size(children, len(chosen)) == len(chosen):
            split(2 * node, chosen)
            return
        subset = members[chosen]
        own = Group(group.labels[subset], group.sparse[subset], group.dense[subset], group.stored, group.frequent)
        side = bisect_group(own, children[0] / sum(children), random.split(), **options)
        split(2 * node, chosen[side == 0])
        split(2 * node + 1, chosen[side == 1])

    split(1, np.arange(len(members)))
    return part


def _assign_parts(
    rows: np.ndarray, sums: np.ndarray, counts: np.ndarray, clusters: list[int], spherical: bool
) -> np.ndarray:
    """Divide the members of each node among its children by the difference between the centers of the children."""
    parts = len(sums)
    part = np.empty(len(rows), int)

    def leaves(node: int) -> slice:
        first = last = node
        while first < parts:
            first, last = 2 * first, 2 * last + 1
        return slice(first - parts, last - parts + 1)

    def center(node: int) -> np.ndarray:
        total: np.ndarray = sums[leaves(node)].sum(axis=0)
        length = np.linalg.norm(total) if spherical else counts[leaves(node)].sum()
        return total / length if length > 0 else 0 * total

    def divide(node: int, members: np.ndarray) -> None:
        if node >= parts:
            part[members] = node - parts
            return
        first = _first_size((clusters[2 * node], clusters[2 * node + 1]), len(members))
        if first < len(members):
            score = rows[members] @ (center(2 * node + 1) - center(2 * node))
            members = members[np.argsort(score, kind="stable")]
        divide(2 * node, np.sort(members[:first]))
        divide(2 * node + 1, np.sort(members[first:]))

    divide(1, np.arange(len(rows)))
    return part


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
                if bisect and options["balanced"] and n_parts > 2:
                    side, shares = bisect_repeatedly(group, n_parts, random, **options)
                elif bisect:
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
