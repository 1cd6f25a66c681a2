"""How a job ends: with its own status, or with one line that says why it has no result."""

from collections.abc import Callable

from azure.core.exceptions import AzureError

from shared.settings import InvalidSettings
from spark.exclusive import FilesRefused
from spark.failures import SparkFailure, root_cause
from spark.intake import RejectsRefused, RowsLost
from spark.manifest import ManifestRefused
from spark.mapping import MappingRefused
from spark.runtime import INTERRUPTED, Interrupted, SparkUnavailable
from spark.sources import SourceRefused
from spark.voice import Voice

REFUSED = (
    FilesRefused,
    InvalidSettings,
    ManifestRefused,
    MappingRefused,
    RejectsRefused,
    RowsLost,
    SourceRefused,
    SparkUnavailable,
)


def ended(voice: Voice, job: Callable[[], int]) -> int:
    """Run a job; its exit status, 2 when it was refused or failed, 130 when it was interrupted."""
    try:
        return job()
    except REFUSED as error:
        return voice.failed(str(error))
    except AzureError as error:
        return voice.failed(f"the account cannot be reached: {error.message.partition('\n')[0]}")
    except SparkFailure as error:
        return voice.failed(root_cause(error))
    except (KeyboardInterrupt, Interrupted):
        voice.say("interrupted; what was sent stays sent, running it again completes it")
        return INTERRUPTED
