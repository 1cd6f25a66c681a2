"""The manual trigger: a function that only the admin endpoint runs."""

from local.functions_host.function import Function
from local.functions_host.protos import TypedData
from local.functions_host.triggers.invocation import report
from local.functions_host.triggers.listener import HostContext


class ManualListener:
    """Listens to nothing."""

    def __init__(self, function: Function, context: HostContext) -> None:
        function.trigger.only()
        self._function = function
        self._worker = context.worker

    async def start(self) -> None:
        """Nothing to begin."""

    async def stop(self, drain_seconds: float) -> None:
        """Nothing to let go of."""

    async def run_now(self, text: str) -> None:
        """Invoke the function with the given text as its input."""
        function = self._function
        inputs = {function.trigger.name: TypedData(string=text)}
        report(function.name, await self._worker.invoke(function.id, function.name, inputs))
