"""The border to a team's code: what that raised, as one error of ours that says what and where.

A team's code is a stranger: it may raise what is no Exception, and an exception may raise when it
is asked for its text. So whoever calls it catches everything and raises HandlerFailed in its place.
Errors of Lockstep's own pass, as they say what the caller does next, and so does the cancellation
of the invocation itself. Nothing here is on the way of a message whose handler returns.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import CodeType

from pydantic import ValidationError

from shared.domain.errors import CallerError, LockstepError
from shared.domain.reports import REASON_CHARACTERS_MAX, shorten
from shared.domain.values import summarise

# So many exceptions of a chain or a group are told, and so many frames of all of them together.
EXCEPTIONS_MAX = 4
FRAMES_MAX = 8
# Of a path, and of the name of a class or a function.
NAME_CHARACTERS_MAX = 80
ROOT = Path(__file__).parents[3]
# Where Lockstep's own code lies; a team's handlers may lie within it, and nowhere among packages.
OWN_FOLDERS = tuple(f"{ROOT / name}{os.sep}" for name in ("shared", "functions"))
HANDLERS_FOLDER = f"{ROOT / 'functions' / 'handlers'}{os.sep}"
STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
PACKAGES = ("site-packages", "dist-packages")

# The code, and the line of it.
type Frame = tuple[CodeType, int | None]


class HandlerFailed(Exception):
    """A team's code raised something; the text is safe to tell and to keep.

    `name` is that of its class, and `raised_at` is where that was, as `find_frames` has it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe_error(error))
        self.name = name_of(error)
        self.raised_at = find_frames(error)


def describe_error(error: BaseException) -> str:
    """Return in one line why a message failed, without values that a model refused.

    Whatever the exception does when it is asked for its text, there is a line.
    """
    try:
        if isinstance(error, HandlerFailed | CallerError):
            return shorten(tell(error))
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        return shorten("; ".join(map(tell_with_name, (error, *members[:EXCEPTIONS_MAX]))))
    except BaseException as untold:
        return f"{name_of(error)}: its text cannot be told, because of {name_of(untold)}"


def tell_with_name(error: BaseException) -> str:
    """The class of an exception, or the model that refused its input, and the text."""
    name = error.title if isinstance(error, ValidationError) else name_of(error)
    return f"{name}: {tell(error)}"


def tell(error: BaseException) -> str:
    """The text of an exception, which may raise anything."""
    if isinstance(error, ValidationError):
        return summarise(error)
    return str(error)[:REASON_CHARACTERS_MAX] or "no message"


def name_of(error: BaseException) -> str:
    """The name of an exception's class, in one line."""
    # Past what a metaclass may say.
    name: str = vars(type)["__name__"].__get__(type(error))
    return shorten(name[:NAME_CHARACTERS_MAX])


def describe_refusal(error: BaseException) -> str:
    """Return in one line why a model refused its input, whatever its validators raised."""
    if isinstance(error, ValidationError):
        return summarise(error)
    # What pydantic called is the first of the team's frames.
    called = next((code for code, _ in frames_in(error) if is_of_a_team(code.co_filename)), None)
    who = f"the validator {shorten(called.co_name)}" if called else "a validator"
    return f"{who} raised {describe_error(error)}"


def find_frames(error: BaseException) -> tuple[str, ...]:
    """Return where an exception came from, as "file:line in function", the innermost frame last.

    These are frames of the team's own code, without values; where there is none, those of the
    packages that it called. What caused the exception follows, under the name of its class.
    """
    if isinstance(error, HandlerFailed):
        return error.raised_at
    lines: list[str] = []
    room = FRAMES_MAX
    # What an exception does when it is looked at must not hide why its message failed.
    with suppress(BaseException):
        for one in chain_of(error):
            own = [frame for frame in frames_in(one) if is_of_a_team(frame[0].co_filename)]
            # An error of Lockstep's own may have no such frame, and what it came from has.
            lines += [f"caused by {name_of(one)}"] if lines else []
            lines += map(write_frame, own[-room:])
            room -= len(own[-room:])
            if not room:
                break
        if not lines and not isinstance(error, LockstepError):
            called = (one for one in frames_in(error) if not is_of_lockstep(one[0].co_filename))
            lines += map(write_frame, [*called][-FRAMES_MAX:])
    return tuple(lines)


def chain_of(error: BaseException) -> list[BaseException]:
    """An exception, what it groups and what caused it: each once, and not too many."""
    found = [error]
    for one in found:
        members = one.exceptions[:EXCEPTIONS_MAX] if isinstance(one, BaseExceptionGroup) else ()
        context = None if one.__suppress_context__ else one.__context__
        for new in (*members, one.__cause__, context):
            if new is not None and all(new is not other for other in found):
                found.append(new)
        if len(found) >= EXCEPTIONS_MAX:
            break
    return found[:EXCEPTIONS_MAX]


def frames_in(error: BaseException) -> list[Frame]:
    """The frames that an exception came through, the innermost last; of a recursion each once."""
    frames: dict[Frame, None] = {}
    place = error.__traceback__
    while place is not None:
        frames[place.tb_frame.f_code, place.tb_lineno] = None
        place = place.tb_next
    return list(frames)


def is_of_lockstep(file: str) -> bool:
    return file.startswith(OWN_FOLDERS) and not file.startswith(HANDLERS_FOLDER)


def is_of_a_team(file: str) -> bool:
    """Return whether the code of a file is neither Lockstep's, nor Python's, nor a package's."""
    if is_of_lockstep(file) or file.startswith(("<", STANDARD_LIBRARY)):
        return False
    return not any(name in file for name in PACKAGES)


def write_frame(frame: Frame) -> str:
    """A frame in one line: the file as it is imported, the line and the function."""
    code, line = frame
    file, function = code.co_filename, code.co_qualname
    roots = [f"{root}{os.sep}" for root in sys.path if root]
    root = max((root for root in roots if file.startswith(root)), key=len, default="")
    shown = file.removeprefix(root)[-NAME_CHARACTERS_MAX:]
    return shorten(f"{shown}:{line} in {function[-NAME_CHARACTERS_MAX:]}")
