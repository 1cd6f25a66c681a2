"""Every run of these tests has the plugin, also one that names a file of them."""

import logging

pytest_plugins = ["tests.plugin"]

# It tells each command to Java, also while some other test hears all that is logged.
logging.getLogger("py4j").setLevel(logging.WARNING)
