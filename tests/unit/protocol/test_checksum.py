import subprocess
import sys

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.checksum import crc32c


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C, RFC 3720
    assert crc32c(memoryview(b"6789"), crc32c(b"12345")) == 0xE3069283


@given(st.binary(max_size=300), st.integers(0, 0xFFFFFFFF))
def test_the_checksum_equals_the_packages(data: bytes, value: int) -> None:
    assert crc32c(data, value) == package.crc32c(data, value)


def test_the_rest_of_the_package_is_not_imported() -> None:
    script = (
        "import sys; from penstock.protocol.checksum import crc32c; crc32c(b'');"
        "print([name for name in ('crc32c', 'argparse', 'importlib.metadata') "
        "if name in sys.modules]);"
        "import crc32c as package; print(package.crc32c(b'123456789') == crc32c(b'123456789'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split(b"\n") == [b"[]", b"True", b""]
