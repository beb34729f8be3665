"""A command that is asked to end does end, also where a library swallows the first exception."""

from __future__ import annotations

import os
import signal
import time

import pytest

from acktrail.cli.progress import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_swallowed_interruption_comes_again(number: signal.Signals) -> None:
    """Twice lost it is raised a third time; after the block every handler is as it was and no alarm is set."""
    before = {each: signal.getsignal(each) for each in (number, signal.SIGALRM)}
    signal.signal(number, signal.SIG_DFL)
    lost = 0
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012  # it ends by itself
        while lost < 2:
            try:
                if not lost:
                    os.kill(os.getpid(), number)
                time.sleep(30)
            except KeyboardInterrupt:
                lost += 1
        time.sleep(30)
    assert lost == 2
    assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGALRM) is before[signal.SIGALRM]
    signal.signal(number, before[number])


def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)
