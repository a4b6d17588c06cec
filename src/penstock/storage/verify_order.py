"""Checks that offsets and leader epochs increase from batch to batch, across segments.

Checks headers only. It reports the batch where a contradiction shows and continues from there, so
that one wrong field is one problem and not one for every later batch.
"""

from penstock.protocol.batch import BatchHeader
from penstock.storage.findings import LogFindings
from penstock.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache


class BatchOrder:
    """Takes every valid batch of a log in order. One per log and check."""

    def __init__(
        self,
        findings: LogFindings,
        epochs: list[EpochEntry] | None,
        *,
        first_offset: int,
        is_clean_stop: bool,
    ) -> None:
        self.expected_offset = first_offset  # the next batch starts here, or later
        # No segment lacked an offset so far, except perhaps at its end: no sign of compaction.
        self.is_whole = True
        self._findings = findings
        self._epochs = LeaderEpochCache(epochs or ())
        self._has_checkpoint = epochs is not None
        self._is_clean_stop = is_clean_stop
        self.latest_epoch = -1  # of the previous batch
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
        """Batches between the last one and the next could not be read."""
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
        if self._has_checkpoint:
            self._compare_with_checkpoint(path, position, header)

    def _compare_with_checkpoint(self, path: str, position: int, header: BatchHeader) -> None:
        epoch, written = header.leader_epoch, self._epochs.find_epoch_at(header.base_offset)
        if written == epoch or (written is None and self._epochs.entries):
            return  # below the first entry the log's records are deleted
        if epoch > self._epochs.latest:
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
        """Report once per epoch. While a broker runs, or after a crash, the checkpoint may lag."""
        if header.leader_epoch == self._noted_epoch:
            return
        self._noted_epoch = header.leader_epoch
        report = self._findings.problem if self._is_clean_stop else self._findings.note
        report(
            "epoch",
            path,
            f"batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, which "
            f"the epoch checkpoint does not know yet (its latest is {self._epochs.latest})",
            position=position,
        )
