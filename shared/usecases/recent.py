"""What a worker remembers between messages: the newest of it, so that it does not grow."""

from collections import OrderedDict


class Recent[K, V](OrderedDict[K, V]):
    """A bounded memory: what was learned longest ago is forgotten first, whoever asked for it.

    Learning anew counts; only setting an item learns.
    """

    def __init__(self, kept_max: int) -> None:
        super().__init__()
        self.kept_max = kept_max

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.kept_max:
            self.popitem(last=False)
