"""Simulate training with 100 million labels on 1,000 workers, using Carya's own scheduler.

    python benchmarks/cluster_simulation.py [--out benchmarks/results/cluster-simulation.json]

The scheduler is not simulated: `divide` from `carya.ranking.tasks.parts` divides the layers into tasks, and
`RayEngine.run` submits the tasks, waits for them and reports progress. Only Ray itself is replaced, by a discrete-event
simulation of the functions that the engine calls. As in Ray, workers take tasks in submission order. The duration of a
task is a fixed overhead plus the time for reading its rows and computing its result; this time, but not the overhead,
is multiplied by a log-normally distributed factor. Machines fail after exponentially distributed times, and their tasks
are then restarted on other machines. All random numbers have fixed seeds, so every run prints the same results.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from carya.cluster.ray_engine import RayEngine
from carya.indexing.clustering import plan
from carya.models.xr_linear.matching_task import ROWS_PER_TASK
from carya.ranking.tasks.parts import divide

NS_PER_WORK = 1.0  # CPU nanoseconds per unit of work, on one core (see docs/scale.md)
MATCH_US = 60.0  # CPU microseconds per row for one search
READ_BYTES_PER_SECOND = 1e8  # from shared storage, per worker
TASK_SECONDS = 0.2  # scheduling, opening files, storing the result
NOISE = 0.3  # standard deviation of the logarithm of the random factor
RECOVERY_SECONDS = 60.0  # time until a failed machine is replaced


@dataclass(frozen=True)
class Task:
    """A task that has a simulated duration and implements the interface that engines require."""

    work: float
    seconds: float

    def run(self, threads: int) -> None:
        """Do nothing: only the duration of the task is simulated."""


@dataclass
class SimulatedCluster:
    """A cluster whose CPUs take tasks in submission order; implements the part of Ray's interface that engines use."""

    nodes: int
    cpus: int
    failures_per_node_hour: float
    seed: int
    now: float = 0.0
    busy_seconds: float = 0.0
    wasted_seconds: float = 0.0
    failures: int = 0
    _queue: list[tuple[int, Task]] = field(default_factory=list)
    _events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    _running: dict[int, dict[int, tuple[float, Task]]] = field(default_factory=dict)
    _free: dict[int, int] = field(default_factory=dict)
    _attempt: dict[int, int] = field(default_factory=dict)
    _finished: list[int] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._free = dict.fromkeys(range(self.nodes), self.cpus)
        self._free_nodes = list(range(self.nodes))
        self._running = {node: {} for node in range(self.nodes)}
        if self.failures_per_node_hour:
            for node in range(self.nodes):
                self._schedule_failure(node)

    # Ray functions that the engine calls.

    def is_initialized(self) -> bool:
        return True

    def ray_nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": self.cpus}} for _ in range(self.nodes)]

    def remote(self, **_options: Any) -> Callable[[Any], Any]:
        def submit(task: Task, _threads: int) -> int:
            reference = self._count
            self._count += 1
            self._attempt[reference] = 0
            heapq.heappush(self._queue, (reference, task))
            return reference

        return lambda _function: types.SimpleNamespace(remote=submit)

    def wait(self, references: Sequence[int], num_returns: int = 1) -> tuple[list[int], list[int]]:
        while not self._finished:
            self._start_tasks()
            self._next_event()
        return [self._finished.pop()], []

    def get(self, _reference: int) -> None:
        return None

    def cancel(self, _reference: int, *, force: bool) -> None:
        raise AssertionError("The engine cancels tasks only after an error.")

    # The simulation.

    def _start_tasks(self) -> None:
        while self._free_nodes and self._queue:
            node = self._free_nodes.pop()
            while self._free[node] and self._queue:
                reference, task = heapq.heappop(self._queue)
                attempt = self._attempt[reference] = self._attempt[reference] + 1
                self._running[node][reference] = (self.now, task)
                heapq.heappush(self._events, (self.now + task.seconds, reference, "end", node, attempt))
                self._free[node] -= 1
            if self._free[node]:
                self._free_nodes.append(node)

    def _next_event(self) -> None:
        at, reference, kind, node, attempt = heapq.heappop(self._events)
        if kind == "end":
            if self._attempt[reference] != attempt or reference not in self._running[node]:
                return  # the machine failed before the task ended
            self.now = at
            started, _ = self._running[node].pop(reference)
            self.busy_seconds += at - started
            self._release(node, self._free[node] + 1)
            self._finished.append(reference)
        elif kind == "failure":
            self.now = at
            self.failures += 1
            for lost, (started, task) in self._running[node].items():
                self.wasted_seconds += at - started
                heapq.heappush(self._queue, (lost, task))
            self._running[node] = {}
            self._free_nodes = [other for other in self._free_nodes if other != node]
            self._free[node] = 0
            heapq.heappush(self._events, (at + RECOVERY_SECONDS, -1, "recovery", node, 0))
        else:
            self.now = at
            self._release(node, self.cpus)
            self._schedule_failure(node)

    def _release(self, node: int, free: int) -> None:
        if not self._free[node]:
            self._free_nodes.append(node)
        self._free[node] = free

    def _schedule_failure(self, node: int) -> None:
        delay = float(self._rng.exponential(3600 / self.failures_per_node_hour))
        heapq.heappush(self._events, (self.now + delay, -2 - node, "failure", node, 0))

    def as_module(self) -> Any:
        """Return a replacement for the module `ray`."""
        module = types.ModuleType("ray")
        for name in ("is_initialized", "remote", "wait", "get", "cancel"):
            setattr(module, name, getattr(self, name))
        module.nodes = self.ray_nodes  # type: ignore[attr-defined]
        module.exceptions = types.SimpleNamespace(RayTaskError=type("RayTaskError", (Exception,), {}))  # type: ignore[attr-defined]
        return module


@dataclass(frozen=True)
class Problem:
    """The sizes of a training problem."""

    rows: int
    labels: int
    features_per_row: float
    clusters_per_row: float  # number of clusters per level that contain labels of a row
    shortlist: float  # number of shortlisted clusters per row when the last layer is trained
    spread: float  # standard deviation of the logarithm of a cluster's share of the rows

    def tree(self) -> list[int]:
        """Return the number of nodes per level."""
        sizes = [1]
        for children in plan(self.labels, 32, 100, None):
            sizes.append(min(sizes[-1] * children, self.labels))
        return [*sizes, self.labels]

    def layer(self, level: int, rng: np.random.Generator) -> tuple[Any, Any]:
        """Return a layer problem and features for `divide`.

        `divide` counts the nonzeros in the rows of each parent. To save memory, each parent has a single row that has
        as many nonzeros as all rows of the parent in a real problem; the counts are the same.
        """
        tree = self.tree()
        parents, nodes = tree[level - 1 : level + 1]
        per_row = 1.0 if level == 1 else self.shortlist if level == len(tree) - 1 else self.clusters_per_row
        share = rng.lognormal(0, self.spread if parents > 1 else 0, parents)
        nonzeros = share / share.sum() * self.rows * min(per_row, parents) * self.features_per_row
        indptr = np.concatenate([[0], np.cumsum(nonzeros.astype(np.int64))])
        features = types.SimpleNamespace(
            sparse=types.SimpleNamespace(indptr=indptr), dense=np.zeros((parents, 0), np.float32)
        )
        one_row = types.SimpleNamespace(indices=np.arange(parents), indptr=np.arange(parents + 1))
        chunks = np.linspace(0, nodes, parents + 1).astype(np.int64)
        return types.SimpleNamespace(chunks=chunks, shortlist=one_row), features


def solve_tasks(problem: Problem, levels: Sequence[int], rng: np.random.Generator) -> list[Task]:
    """Return the tasks for layers that are trained together."""
    tasks = []
    for level in levels:
        layer, features = problem.layer(level, rng)
        nonzeros = np.diff(features.sparse.indptr)
        for part in divide([layer], features):
            read = 8 * float(nonzeros[part.first : part.last].sum()) / READ_BYTES_PER_SECOND
            seconds = 1e-9 * NS_PER_WORK * part.work + read
            tasks.append(Task(part.work, float(TASK_SECONDS + seconds * rng.lognormal(0, NOISE))))
    return tasks


def match_tasks(problem: Problem, rng: np.random.Generator) -> list[Task]:
    """Return the tasks that compute the matcher-aware negatives."""
    seconds = 1e-6 * MATCH_US * ROWS_PER_TASK + 8 * problem.features_per_row * ROWS_PER_TASK / READ_BYTES_PER_SECOND
    count = -(-problem.rows // ROWS_PER_TASK)
    return [Task(1.0, TASK_SECONDS + seconds * factor) for factor in rng.lognormal(0, NOISE, count).tolist()]


def simulate(name: str, problem: Problem, *, nodes: int, cpus: int, failures: float, shards: int = 1) -> dict[str, Any]:
    """Simulate all phases of one training run, or of several concurrent training runs, on a cluster."""
    rng = np.random.default_rng(1)
    depth = len(problem.tree()) - 1
    phases: dict[str, list[Task]] = {
        "inner layers": [task for _ in range(shards) for task in solve_tasks(problem, range(1, depth), rng)],
        "match": [task for _ in range(shards) for task in match_tasks(problem, rng)],
        "last layer": [task for _ in range(shards) for task in solve_tasks(problem, [depth], rng)],
    }
    cluster = SimulatedCluster(nodes, cpus, failures, seed=2)
    results = []
    started = time.process_time()
    with mock.patch.dict(sys.modules, {"ray": cluster.as_module()}):
        for phase, tasks in phases.items():
            begin, busy = cluster.now, cluster.busy_seconds
            RayEngine().run(tasks)
            elapsed = cluster.now - begin
            total = sum(task.seconds for task in tasks)
            longest = max(task.seconds for task in tasks)
            results.append(
                {
                    "phase": phase,
                    "tasks": len(tasks),
                    "seconds": elapsed,
                    "longest_task_s": longest,
                    "lower_bound_s": max(total / (nodes * cpus), longest),
                    "utilization": (cluster.busy_seconds - busy) / (elapsed * nodes * cpus),
                }
            )
    return {
        "name": name,
        "problem": asdict(problem),
        "shards": shards,
        "workers": nodes * cpus,
        "failures_per_node_hour": failures,
        "failures": cluster.failures,
        "wasted_share": cluster.wasted_seconds / max(cluster.busy_seconds + cluster.wasted_seconds, 1e-9),
        "seconds": cluster.now,
        "cpu_hours": cluster.busy_seconds / 3600,
        "scheduler_cpu_s": time.process_time() - started,
        "phases": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON output file")
    arguments = parser.parse_args()
    shard = Problem(20_000_000, 1_000_000, 100, 4, 11, 0.5)
    whole = Problem(1_000_000_000, 100_000_000, 100, 4, 11, 0.5)
    cluster = {"nodes": 125, "cpus": 8}
    runs = [
        simulate("20 shards of 1 M labels", shard, **cluster, failures=0.0, shards=20),
        simulate("20 shards, failing machines", shard, **cluster, failures=2.0, shards=20),
        simulate("one shard of 1 M labels", shard, **cluster, failures=0.0),
        simulate("one tree of 100 M labels", whole, **cluster, failures=0.0),
    ]
    console = Console(width=140)
    for run in runs:
        title = f"{run['name']}: {run['seconds'] / 3600:.2f} h, {run['cpu_hours']:,.0f} CPU hours, "
        title += f"{run['failures']} failures, {100 * run['wasted_share']:.1f}% repeated"
        table = Table("phase", "tasks", "seconds", "lower bound", "longest task", "utilization", title=title)
        for phase in run["phases"]:
            table.add_row(
                phase["phase"],
                f"{phase['tasks']:,}",
                f"{phase['seconds']:,.0f}",
                f"{phase['lower_bound_s']:,.0f}",
                f"{phase['longest_task_s']:,.0f}",
                f"{100 * phase['utilization']:.0f}%",
            )
        console.print(table)
    if arguments.out:
        for run in runs:
            del run["scheduler_cpu_s"]  # the only value that differs between runs
        arguments.out.write_text(json.dumps({"workers": 1000, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
