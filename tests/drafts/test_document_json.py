"""Records spelt with the field names of the founding documents."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import any_batches

from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.draft_records import Checkpoint, ControlDelta, Delta, DraftSnapshot, DraftUpdate
from acktrail_simulation.drafts.document_json import read_checkpoint_record, read_control_record, read_draft_record
from acktrail_simulation.messages.batch_json import batch_fields, read_batches

KEY = SharePartition(group_id=GroupId("G1"), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=3)
ONE = StateBatch(first_offset=110, last_offset=112, delivery_state=2, delivery_count=1)


@given(any_batches, st.randoms(use_true_random=False))
def test_old_and_new_names_mean_the_same(batches: tuple[StateBatch, ...], random: Any) -> None:
    """R002-10, R002-11, ER-5: a batch under any mix of old and new names, or as a list, is the same batch."""
    spelt: list[Any] = []
    for batch in batches:
        fields = batch_fields(batch)
        for new, old in (("FirstOffset", "BaseOffset"), ("DeliveryState", "State")):
            if random.random() < 0.5:
                fields[old] = fields.pop(new)
        spelt.append(fields if random.random() < 0.7 else list(batch_fields(batch).values()))

    assert read_batches({random.choice(("States", "StateBatches")): spelt}) == batches


def test_a_record_is_told_by_its_fields() -> None:
    """R000-51, R001-07, R001-38: BackOffset, DeltaIndex, EndOffset and StateEpoch tell the records apart."""
    states = {"States": [batch_fields(ONE)]}
    control = {"GroupId": "G1", "CheckpointEpoch": 1, **states}
    assert read_control_record(control) == ControlDelta(
        group_id=GroupId("G1"), checkpoint_epoch=1, back_offset=None, batches=(ONE,)
    )
    chained = read_control_record({**control, "BackOffset": 130})
    assert isinstance(chained, ControlDelta)
    assert chained.back_offset == 130

    keyed = {"CheckpointEpoch": 1, "StartOffset": -1, **states}
    assert isinstance(read_checkpoint_record(keyed, KEY), Checkpoint)
    assert read_checkpoint_record({**keyed, "DeltaIndex": 4}, KEY) == Delta(
        key=KEY, delta_index=4, checkpoint_epoch=1, start_offset=None, batches=(ONE,)
    )

    draft = {"SnapshotEpoch": 3, "StartOffset": 110, **states}
    assert read_draft_record(draft, KEY, update=False) == DraftSnapshot(
        key=KEY, state_epoch=None, snapshot_epoch=3, start_offset=110, batches=(ONE,)
    )
    assert read_draft_record({**draft, "StateEpoch": 9}, KEY, update=True) == DraftUpdate(
        key=KEY, state_epoch=9, snapshot_epoch=3, start_offset=110, batches=(ONE,)
    )
