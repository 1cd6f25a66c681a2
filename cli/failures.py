"""The ends of commands: the exit statuses, and the errors that become them."""

DONE, REFUSED, MISUSED, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 130

EXIT_STATUSES = """\
exit status: 0 done, 1 the app refused it or something is wrong, 2 the command line is wrong,
3 no app answered or nobody knows what came of it, 130 interrupted"""


class CommandFailed(Exception):
    """A command could not be done; the text says why and what to do next."""

    status = REFUSED


class Misuse(CommandFailed):
    """The command makes no sense as it was asked: nothing was done."""

    status = MISUSED


class NoAnswer(CommandFailed):
    """No app could be reached, or none answered in time."""

    status = NO_ANSWER
