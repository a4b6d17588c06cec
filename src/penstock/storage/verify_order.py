"""What must hold from batch to batch, across segments: offsets and leader epochs go up.

Judges headers only. Of a contradiction it reports the batch at which it shows, then goes on from
there, so that one wrong field is one problem and not one for every batch that follows.
"""

from penstock.protocol.batch import BatchHeader
from penstock.storage.findings import LogFindings
from penstock.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache


class BatchOrder:
    """Fed with every sound batch of a log, front to back. One per log and check."""

    def __init__(
        self,
        findings: LogFindings,
        known: list[EpochEntry] | None,
        *,
        first_offset: int,
        is_clean_stop: bool,
    ) -> None:
        self.expected_offset = first_offset  # the next batch begins here, or later
        # No segment lacked an offset so far, but perhaps at its end: nothing shows a compaction.
        self.is_whole = True
        self._findings = findings
        self._known = LeaderEpochCache(known or ())
        self._is_known = known is not None
        self._is_clean_stop = is_clean_stop
        self.latest_epoch = -1  # of the batch before
        self._noted_epoch = -1
        self._previous = "the segment's start"

    def start_segment(self, base_offset: int) -> None:
        self._previous = "the segment's start"
        self.expected_offset = max(self.expected_offset, base_offset)

    def take(self, path: str, position: int, header: BatchHeader) -> None:
        self._check_offset(path, position, header)
        self._check_epoch(path, position, header)
        is_full = header.record_count == header.last_offset_delta + 1
        self.is_whole = self.is_whole and is_full and header.base_offset == self.expected_offset
        self.expected_offset = header.next_offset
        self._previous = f"the batch at position {position}"

    def lose_track(self) -> None:
        """Batches that could not be read lie between the last one and the next."""
        self.is_whole = False

    def _check_offset(self, path: str, position: int, header: BatchHeader) -> None:
        if header.base_offset < self.expected_offset:
            self._findings.problem(
                "offset-order",
                path,
                f"batch begins at offset {header.base_offset}, but {self._previous} leads to "
                f"{self.expected_offset}: one of the two is wrong",
                position=position,
            )

    def _check_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epoch = header.leader_epoch
        if epoch < self.latest_epoch:
            self._findings.problem(
                "epoch-order",
                path,
                f"batch at offset {header.base_offset} has leader epoch {epoch} after epoch "
                f"{self.latest_epoch}: one of the two is wrong",
                position=position,
            )
        self.latest_epoch = epoch
        if self._is_known:
            self._compare_with_checkpoint(path, position, header)

    def _compare_with_checkpoint(self, path: str, position: int, header: BatchHeader) -> None:
        epoch, written = header.leader_epoch, self._known.find_epoch_at(header.base_offset)
        if written == epoch or (written is None and self._known.entries):
            return  # below the first entry the log's records have been deleted
        if epoch > self._known.latest:
            self._report_newer(path, position, header)
        elif written is not None:
            self._findings.problem(
                "epoch",
                path,
                f"batch at offset {header.base_offset} has leader epoch {epoch}, the epoch "
                f"checkpoint says {written}",
                position=position,
            )

    def _report_newer(self, path: str, position: int, header: BatchHeader) -> None:
        """Once an epoch. While a broker runs, or after a crash, the checkpoint may lag."""
        if header.leader_epoch == self._noted_epoch:
            return
        self._noted_epoch = header.leader_epoch
        report = self._findings.problem if self._is_clean_stop else self._findings.note
        report(
            "epoch",
            path,
            f"batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, which "
            f"the epoch checkpoint does not know yet (its latest is {self._known.latest})",
            position=position,
        )
