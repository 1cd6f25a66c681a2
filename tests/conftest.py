"""Every run of these tests has the plugin, also one that names a file of them."""

pytest_plugins = ["tests.plugin"]
