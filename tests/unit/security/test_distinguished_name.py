"""Names of certificates: as `cryptography` reads them, and as Java prints them."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.profile import is_long, scaled

from penstock.security.certificate import MalformedCertificate, read_certificate
from penstock.security.distinguished_name import format_rfc2253

_KEY = ec.generate_private_key(ec.SECP256R1())
_OIDS = (
    NameOID.COMMON_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.GIVEN_NAME,
    NameOID.TITLE,
)
_TEXT_TYPES = (
    _ASN1Type.UTF8String,
    _ASN1Type.NumericString,
    _ASN1Type.PrintableString,
    _ASN1Type.T61String,
    _ASN1Type.IA5String,
    _ASN1Type.VisibleString,
    _ASN1Type.UniversalString,
    _ASN1Type.BMPString,
)
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs", "Cc")),
    min_size=1,
    max_size=12,
)
_TRICKY = st.text(st.sampled_from(' ,=+<>#;"\\abcäß漢'), min_size=1, max_size=8)
_ATTRIBUTE = st.builds(
    lambda oid, value: x509.NameAttribute(oid, value, _ASN1Type.UTF8String),
    st.sampled_from(_OIDS),
    _TEXT | _TRICKY,
)
_SUBJECT = st.lists(
    st.lists(_ATTRIBUTE, min_size=1, max_size=2, unique_by=lambda attribute: attribute.oid).map(
        x509.RelativeDistinguishedName
    ),
    min_size=1,
    max_size=5,
).map(x509.Name)


def make_der(subject: x509.Name) -> bytes:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(_KEY.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30_000))
        .sign(_KEY, SHA256())
        .public_bytes(Encoding.DER)
    )


def named(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            named(
                (NameOID.COUNTRY_NAME, "US"),
                (NameOID.STATE_OR_PROVINCE_NAME, "MD"),
                (NameOID.ORGANIZATION_NAME, "My, Company"),
                (NameOID.COMMON_NAME, "Duke"),
            ),
            "CN=Duke,O=My\\, Company,ST=MD,C=US",
        ),
        (
            named((NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, " x ")),
            "CN=\\ x\\ ,1.2.840.113549.1.9.1=#1603614062",
        ),
        (named((NameOID.COMMON_NAME, '#a"b\\c=d+e')), 'CN=\\#a\\"b\\\\c\\=d\\+e'),
        (x509.Name([]), ""),
    ],
)
def test_a_name_is_printed_as_java_does(subject: x509.Name, expected: str) -> None:
    assert format_rfc2253(read_certificate(make_der(subject)).subject) == expected


@given(_SUBJECT)
def test_every_attribute_is_read(subject: x509.Name) -> None:
    read = read_certificate(make_der(subject)).subject
    assert [
        {(attribute.oid, attribute.value.content.decode()) for attribute in names} for names in read
    ] == [{(a.oid.dotted_string, a.value) for a in names} for names in subject.rdns]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_are_no_certificate_are_refused(noise: bytes, position: int) -> None:
    """Or read, if they are still one; nothing else is raised."""
    der = make_der(named((NameOID.COMMON_NAME, "a")))
    for candidate in (noise, der[:position], der[:position] + noise + der[position + len(noise) :]):
        try:
            format_rfc2253(read_certificate(candidate).subject)
        except MalformedCertificate:
            continue


_JAVA = """
import java.io.*; import java.nio.charset.*; import java.nio.file.*; import java.security.cert.*;
public class Names {
    public static void main(String[] paths) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String path : Files.readAllLines(Path.of(paths[0]))) {
            try (InputStream in = new FileInputStream(path)) {
                X509Certificate read = (X509Certificate) factory.generateCertificate(in);
                out.print(read.getSubjectX500Principal().getName() + "\\u0001");
            }
        }
    }
}
"""


@pytest.mark.skipif(not is_long(), reason="starts a Java compiler; runs in verify")
def test_names_are_exactly_javas(tmp_path: Path) -> None:
    subjects: list[x509.Name] = []

    @given(_SUBJECT)
    def collect(subject: x509.Name) -> None:
        subjects.append(subject)

    collect()
    ders = [make_der(subject) for subject in subjects[: scaled(test=10, verify=300, release=2000)]]
    for tag in _TEXT_TYPES:
        text = x509.NameAttribute(NameOID.COMMON_NAME, "Ab c", tag)
        ders.append(make_der(x509.Name([text])))
    paths = [tmp_path / f"{number}.der" for number in range(len(ders))]
    for path, der in zip(paths, ders, strict=True):
        path.write_bytes(der)
    (tmp_path / "paths").write_text("\n".join(map(str, paths)))
    (tmp_path / "Names.java").write_text(_JAVA)
    printed = subprocess.run(
        ["java", tmp_path / "Names.java", tmp_path / "paths"], check=True, capture_output=True
    ).stdout.decode()
    names = printed.split("\1")[:-1]
    assert [format_rfc2253(read_certificate(der).subject) for der in ders] == names
