"""What calls of Spark raise."""

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

# Py4J's own for Java exceptions that PySpark does not know, such as that of an unknown format.
SPARK_ERRORS = (PySparkException, Py4JJavaError)

# The Java process has ended, or ends while it is asked. Not every ConnectionError: a pipe to which
# this process writes may be closed, too.
JAVA_ENDED = (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError)
