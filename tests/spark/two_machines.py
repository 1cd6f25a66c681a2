"""A small Spark cluster with an executor on each of two addresses, within one Java and two more.

Spark copies a slow task only to another host: not with a `local` master, and not with a
`local-cluster`, whose workers all have the same name. Here each worker has a loopback address of
its own.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

MASTER, WORKERS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
MEMORY_MIB = 512
QUIET = {
    "spark.ui.enabled": "false",
    "spark.master.rest.enabled": "false",
    "spark.driver.host": MASTER,
    "spark.driver.bindAddress": MASTER,
    "spark.executor.memory": f"{MEMORY_MIB}m",
    "spark.executor.cores": "1",
}


@contextmanager
def two_machines(folder: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on the cluster; all of it ends with the context."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = MASTER
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setAppName("two-machines").setAll([*QUIET.items(), *settings.items()])
    SparkContext._ensure_initialized(conf=conf)
    with ExitStack() as running:
        conf.setMaster(started(conf, folder, running))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        running.callback(session.stop)
        yield session


def started(conf: SparkConf, folder: Path, running: ExitStack) -> str:
    """Start a master and its workers in this process's Java; where the master is."""
    java: Any = SparkContext._jvm
    options = java.org.apache.spark.SparkConf(False)
    for name, value in conf.getAll():
        options.set(name, value)
    deploy = java.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(MASTER, 0, 0, options)._1()
    running.callback(master.shutdown)
    place = f"spark://{MASTER}:{master.address().port()}"
    for number, host in enumerate(WORKERS):
        worker = deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, MEMORY_MIB, texts(place), str(folder), some(number), options, none()
        )
        running.callback(worker.shutdown)
    return place


def texts(*values: str) -> Any:
    java: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    array = gateway.new_array(java.java.lang.String, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def some(value: int) -> Any:
    java: Any = SparkContext._jvm
    return java.scala.Option.apply(value)


def none() -> Any:
    java: Any = SparkContext._jvm
    return java.scala.Option.empty()
