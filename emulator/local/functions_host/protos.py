"""The messages of the Functions worker protocol, as plain objects.

The worker library takes its message classes as a module and only makes them, reads their attributes
and asks which member of a `oneof` is set; this module is that much of FunctionRpc.proto.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any


class TypedData:
    """One value on its way to or from a function; it is the attribute named like its kind."""

    def __init__(self, **member: Any) -> None:
        self.__dict__ = member

    @property
    def kind(self) -> str | None:
        return next(iter(self.__dict__), None)

    @property
    def value(self) -> Any:
        return next(iter(self.__dict__.values()), None)

    def WhichOneof(self, group: str) -> str | None:  # noqa: ARG002, N802 - protobuf's signature
        return next(iter(self.__dict__), None)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class ParameterBinding(SimpleNamespace):
    name: str
    data: TypedData

    def WhichOneof(self, group: str) -> str:  # noqa: ARG002, N802 - protobuf's signature
        """Return `data`: values travel in the message, never in shared memory."""
        return "data"


class RpcException(SimpleNamespace):
    message: str
    stack_trace: str


class StatusResult(SimpleNamespace):
    Failure = 0
    Success = 1
    status: int
    exception: RpcException | None = None


class InvocationResponse(SimpleNamespace):
    result: StatusResult
    return_value: TypedData | None = None
    output_data: Sequence[ParameterBinding] = ()


class RpcFunctionMetadata(SimpleNamespace):
    """A function the worker found in the app; bindings are JSON texts."""

    name: str
    function_id: str
    raw_bindings: Sequence[str]
    retry_options: Any = None


class RpcHttp(SimpleNamespace):
    method: str
    url: str
    headers: Mapping[str, str]
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: TypedData
    status_code: str
    cookies: Sequence[Any] | None


class RpcHttpCookie(SimpleNamespace):
    """A cookie of a response; absent attributes are None."""

    SameSite = IntEnum(
        "SameSite",
        {"None": 0, "Lax": 1, "Strict": 2, "ExplicitNone": 3},
        qualname="RpcHttpCookie.SameSite",  # by which a cookie finds its way between processes
    )


class BindingInfo(SimpleNamespace):
    undefined = 0
    out = 1
    inout = 2


# The library makes these, and nobody here looks into them by type.
FunctionLoadResponse = FunctionMetadataResponse = WorkerInitResponse = SimpleNamespace
WorkerMetadata = RpcRetryOptions = Timestamp = SimpleNamespace
NullableString = NullableBool = NullableDouble = NullableTimestamp = SimpleNamespace
