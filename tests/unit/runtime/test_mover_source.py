"""What a source's own trouble means."""

import pytest

from worldline.migration import source as words
from worldline.runtime.mover_source import Trouble


@pytest.mark.parametrize("phase", words.Phase)
def test_trouble_thaws_before_the_seal_and_never_after_it(phase):
    """1 a task of the attempt fails while FROZEN  2 the seal is handled first  3 the failure is heard: the swap may be
    made by now, so only the controller may thaw.
    """
    heard = Trouble("INTERNAL", "a task failed").heard_in(phase)
    sealed = phase in {words.Phase.SEALED, words.Phase.PREPARED}
    assert type(heard) is (words.LinkLost if sealed else words.Abort)
