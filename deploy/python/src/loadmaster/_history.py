"""Results of purges: deleted resources, and resources that stay because others reference them."""

from __future__ import annotations

from dataclasses import dataclass

from ._wire.v1 import history_pb2
from ._words import short


@dataclass(frozen=True)
class Referenced:
    """An old resource that stays."""

    #: `plans/ID`, `profiles/ID`, and so on.
    name: str
    #: Remaining resources that reference it: the first three of `reference_count`.
    referrers: list[str]
    #: Number of all of them.
    reference_count: int


@dataclass(frozen=True, repr=False)
class Purged:
    """Resources that were old enough and matched the filter."""

    #: The planner's whole response.
    message: history_pb2.PurgeHistoryResponse

    def __repr__(self) -> str:
        return short(self, f"{self.purge_count} purged", f"{self.referenced_count} referenced")

    @property
    def dry_run(self) -> bool:
        """Whether nothing was deleted, because the request had no `force`."""
        return bool(self.message.dry_run)

    @property
    def purge_count(self) -> int:
        """Number of deleted resources; of a dry run, of those that would be deleted."""
        return sum(of.purge_count for of in self.message.collections)

    @property
    def referenced_count(self) -> int:
        """Number of resources that stay because others reference them."""
        return sum(of.referenced_count for of in self.message.collections)

    @property
    def purge_sample(self) -> list[str]:
        """Names of the youngest 100 deleted resources of each collection."""
        return [name for of in self.message.collections for name in of.purge_sample]

    @property
    def referenced_sample(self) -> list[Referenced]:
        """The youngest 100 resources of each collection that stay, with their references."""
        return [
            Referenced(row.name, list(row.referrers), row.reference_count)
            for of in self.message.collections
            for row in of.referenced_sample
        ]
