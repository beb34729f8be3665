"""Replay of generation iii over all keys, with what its rules say about every record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from acktrail.drafts.batch_merging import Merging
from acktrail.drafts.checkpoint_log import (
    CheckpointReplay,
    CheckpointTrack,
    advance_track,
    delta_index_step,
    is_applied,
)
from acktrail.drafts.draft_records import Checkpoint, CheckpointRecord, CheckpointTombstone, Delta, DeltaTombstone
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import SharePartition
from acktrail.model.strict.offset_window import OffsetWindow, batch_violations, window_violations
from acktrail.model.strict.violations import Rule, Violation

_FRESH = CheckpointTrack()


def replay_checkpoint_log(
    records: Iterable[RecordAt[CheckpointRecord]],
    *,
    merging: Merging = Merging.OVERLAY,
    compacted: bool = False,
) -> CheckpointReplay:
    """The track of every share partition after `records`, which come in log order within a state partition.

    `compacted`: a cleaner may have been there. Then skipped epochs and indices are no violations, nor is a delta that a
    later checkpoint makes void.
    """
    tracks: dict[SharePartition, CheckpointTrack] = {}
    homes: dict[SharePartition, tuple[int, int]] = {}
    applied: list[tuple[int, int]] = []
    violations: list[Violation] = []
    for record_at in records:
        key, address = record_at.record.key, (record_at.partition, record_at.offset)
        track = tracks.get(key, _FRESH)
        rules = [*_broken_rules(track, record_at.record, compacted=compacted)]
        if homes.setdefault(key, address)[0] != record_at.partition:
            rules.append(Rule.ONE_STATE_PARTITION_PER_KEY)
        violations += [_violation(record_at, rule) for rule in rules]
        if is_applied(track, record_at.record):
            applied.append(address)
        tracks[key] = advance_track(track, record_at.record, merging=merging)
        homes[key] = (homes[key][0], record_at.offset)
    violations = [violation for violation in violations if not (compacted and _is_void(tracks, violation))]
    violations += _unfinished_removals(tracks, homes)
    return CheckpointReplay(tracks=tracks, applied=tuple(applied), violations=tuple(violations))


def _broken_rules(track: CheckpointTrack, record: CheckpointRecord, *, compacted: bool) -> Iterator[Rule]:
    if isinstance(record, Checkpoint):
        yield from _broken_by_checkpoint(track, record, compacted=compacted)
    elif isinstance(record, Delta):
        yield from _broken_by_delta(track, record, compacted=compacted)
    elif isinstance(record, DeltaTombstone) and track.state is not None:
        yield Rule.DELETION_ORDER


def _broken_by_checkpoint(track: CheckpointTrack, record: Checkpoint, *, compacted: bool) -> Iterator[Rule]:
    before = -1 if track.last_epoch is None else track.last_epoch
    expected = (0, before + 1) if track.is_deleted else (before + 1,)
    if record.checkpoint_epoch not in expected and not (compacted and record.checkpoint_epoch > before):
        yield Rule.CHECKPOINT_EPOCH_STEP
    if record.start_offset is None:
        yield Rule.CHECKPOINT_HAS_START
    yield from window_violations(
        OffsetWindow(start_offset=record.start_offset, end_offset=None, batches=record.batches)
    )


def _broken_by_delta(track: CheckpointTrack, record: Delta, *, compacted: bool) -> Iterator[Rule]:
    if track.state is None:
        yield Rule.DELTA_HAS_CHECKPOINT
    elif record.checkpoint_epoch != track.state.checkpoint_epoch:
        yield Rule.DELTA_EPOCH_MATCHES
    if not compacted and not delta_index_step(track.last_delta_index, record.delta_index).is_valid:
        yield Rule.DELTA_INDEX_STEP
    if record.delta_index in track.used_delta_indices:
        yield Rule.DELTA_INDEX_NOT_REUSED
    yield from batch_violations(record.batches)


def _is_void(tracks: dict[SharePartition, CheckpointTrack], violation: Violation) -> bool:
    """A delta without checkpoint, of a key that has one now: the cleaner took the checkpoint it belonged to."""
    if violation.rule is not Rule.DELTA_HAS_CHECKPOINT or not isinstance(violation.subject, SharePartition):
        return False
    track = tracks[violation.subject]
    return track.state is not None or track.is_deleted


def _unfinished_removals(
    tracks: dict[SharePartition, CheckpointTrack], newest: dict[SharePartition, tuple[int, int]]
) -> Iterator[Violation]:
    for key, track in tracks.items():
        if track.pending_delta_tombstones:
            yield Violation(
                rule=Rule.DELETION_COMPLETE,
                subject=key,
                partition=newest[key][0],
                offset=newest[key][1],
                detail=f"no tombstone yet for delta indices {list(track.pending_delta_tombstones)}",
            )


def _violation(record_at: RecordAt[CheckpointRecord], rule: Rule) -> Violation:
    record = record_at.record
    detail = {
        Checkpoint: "checkpoint",
        Delta: "delta",
        CheckpointTombstone: "checkpoint tombstone",
        DeltaTombstone: "delta tombstone",
    }[type(record)]
    if isinstance(record, Delta | DeltaTombstone):
        detail += f" {record.delta_index}"
    if isinstance(record, Checkpoint | Delta):
        detail += f" of epoch {record.checkpoint_epoch}"
    return Violation(
        rule=rule, subject=record.key, partition=record_at.partition, offset=record_at.offset, detail=detail
    )
