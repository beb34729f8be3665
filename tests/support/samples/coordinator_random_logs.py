"""Random lives of a few share partitions, as a share coordinator writes them down."""

from __future__ import annotations

from hypothesis import strategies as st
from state_topics.coordinator_log import Coordinator, batch, share_partition

from acktrail.model.records import StateRecord

__all__ = ["KEYS", "coordinator_logs"]

KEYS = [share_partition(partition=number) for number in range(2)]


@st.composite
def coordinator_logs(draw: st.DrawFn) -> list[StateRecord]:
    """The log of a share coordinator with a few share partitions at work: nothing but what a broker writes."""
    life = Coordinator(limit=draw(st.integers(1, 4)))
    reached = dict.fromkeys(KEYS, 0)
    for _ in range(draw(st.integers(1, 12))):
        key = draw(st.sampled_from(KEYS))
        deed = draw(st.integers(0, 9))
        if key not in life.states:
            life.initialize(key, start_offset=draw(st.one_of(st.none(), st.integers(0, 5))))
        elif deed == 0:
            life.delete(key)
            reached[key] = 0
        elif deed == 1:
            life.cool()
        elif deed == 2:
            epoch = (life.states[key].state_epoch or 0) + draw(st.integers(0, 2))
            life.initialize(key, state_epoch=epoch, start_offset=draw(st.integers(0, 12)))
        else:
            state = life.states[key]
            first = max(reached[key] - draw(st.integers(0, 6)), state.first_unfinished_offset or 0, 0)
            last = first + draw(st.integers(0, 4))
            known = {b.delivery_count for b in state.batches if b.first_offset <= last and first <= b.last_offset}
            terminal = any(b.is_terminal and b.first_offset <= last and first <= b.last_offset for b in state.batches)
            if terminal:
                continue
            done = batch(first, last, draw(st.sampled_from((0, 2, 4))), max(known, default=0) + 1)
            life.write(key, draw(st.sampled_from((state.start_offset or 0, state.first_unfinished_offset or 0))), done)
            reached[key] = max(reached[key], last + 1)
    return life.log
