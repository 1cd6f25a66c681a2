"""Tools for tests of an app on Azure on one machine: a cloud as a process, broken and looked at.

`cloud` starts and kills it, `control` breaks and counts, `answers` asks a Functions host,
`patience` waits with limits that a busy machine does not exhaust, and `children` keeps processes
from outliving the test. Nothing here imports another part of `local`: a cloud is reached as anybody
reaches it.
"""
