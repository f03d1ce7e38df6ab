"""What became of the history: what was deleted, and what stays because something needs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ._wire.v1 import history_pb2
from ._words import short

#: Kept rows that are told of each collection, as the command line tells them.
MOST_KEPT = 100


@dataclass(frozen=True)
class Kept:
    """Something old that stays."""

    #: `plans/ID`, `profiles/ID`, and so on.
    name: str
    #: What stays and refers to it: the first three of `by_count`.
    by: list[str]
    #: How many refer to it.
    by_count: int


@dataclass(frozen=True, repr=False)
class Pruned:
    """What was old enough and fitted the filter, of all pages."""

    #: All that the planner said, its pages added up.
    message: history_pb2.PruneHistoryResponse = field(default_factory=history_pb2.PruneHistoryResponse)

    def __repr__(self) -> str:
        return short(self, f"{self.taken_count} taken", f"{self.kept_count} kept")

    @property
    def taken_count(self) -> int:
        """How much was deleted, or would be."""
        return sum(of.taken_count for of in self.message.collections)

    @property
    def kept_count(self) -> int:
        """How much stays because something that stays refers to it."""
        return sum(of.kept_count for of in self.message.collections)

    @property
    def taken(self) -> list[str]:
        """Names of what was deleted, or would be: of a dry run the youngest 1,000 of each collection."""
        return [name for of in self.message.collections for name in of.taken]

    @property
    def kept(self) -> list[Kept]:
        """What stays and why, the youngest 100 of each collection."""
        return [Kept(row.name, list(row.by), row.by_count) for of in self.message.collections for row in of.kept]

    def add(self, page: Iterable[history_pb2.PrunedCollection]) -> None:
        """Adds what one page more says."""
        for more in page:
            of = next((of for of in self.message.collections if of.collection == more.collection), None)
            if of is None:
                self.message.collections.add().CopyFrom(more)
                continue
            of.taken_count += more.taken_count
            of.kept_count += more.kept_count
            of.taken.extend(more.taken)
            of.kept.extend(more.kept[: max(MOST_KEPT - len(of.kept), 0)])
