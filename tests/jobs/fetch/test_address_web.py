import pytest

from stoop_worker.errors import ImageAddressInvalid, ImageForbidden
from stoop_worker.jobs.fetch.address_web import WebAddress, parse_web


@pytest.mark.parametrize(
    ("address", "host", "target"),
    [
        ("https://example.org", "example.org", "/"),
        ("https://Example.ORG:443/a.jpg", "example.org", "/a.jpg"),
        ("HTTPS://example.org/a.jpg#part", "example.org", "/a.jpg"),
        ("https://example.org?x=1", "example.org", "/?x=1"),
        ("https://a-b.c1.example.org/%2e%2e/a?b=c&d=/e", "a-b.c1.example.org", "/%2e%2e/a?b=c&d=/e"),
        ("https://example.org/ünï.jpg", "example.org", "/%C3%BCn%C3%AF.jpg"),
        ("https://xn--bcher-kva.example/a@b", "xn--bcher-kva.example", "/a@b"),
    ],
)
def test_addresses(address: str, host: str, target: str) -> None:
    assert parse_web(address) == WebAddress(host, target)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://example.org/a",
        "https:example.org",
        "https:///a",
        "ftp://example.org/a",
        "https://user:hidden@example.org/a",
        "https://hidden@example.org/a",
        "https://example.org@10.0.0.1/a",
        "https://example.org:8443/a",
        "https://example.org:/a",
        "https://example.org:0443/a",
        "https://localhost/a",
        "https://metadata/a",
        "https://example.org./a",
        "https://.example.org/a",
        "https://exam ple.org/a",
        "https://example.org\\@10.0.0.1/a",
        "https://example.org\\.evil.org/a",
        "https://127.0.0.1/a",
        "https://2130706433/a",
        "https://0x7f000001/a",
        "https://0x7f.1/a",
        "https://0177.0.0.1/a",
        "https://127.1/a",
        "https://[::1]/a",
        "https://[::ffff:169.254.169.254]/a",
        "https://１２７.０.０.１/a",
        "https://exampleſ.org/a",
        "https://bücher.example/a",
        "https://example。org/a",
        "https://-a.example.org/a",
        f"https://{'a' * 64}.example.org/a",
        f"https://{'a.' * 130}org/a",
        "https://example.org/a b",
        "https://example.org/a\r\nX: y",
        "https://example.org/a\tb",
        "https://example.org/\x00",
        "https://example.org/\ud800",
        "https://example.org/" + "a" * 5000,
    ],
)
def test_ambiguous_addresses_are_refused(address: str) -> None:
    with pytest.raises(ImageAddressInvalid) as raised:
        parse_web(address)
    assert "hidden" not in str(raised.value)


def test_a_query_stays_out_of_messages() -> None:
    assert str(parse_web("https://example.org/a.jpg?X-Amz-Signature=hidden")) == "https://example.org/a.jpg"


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/b", WebAddress("example.org", "/b")),
        ("c?x", WebAddress("example.org", "/a/c?x")),
        ("//other.example/b", WebAddress("other.example", "/b")),
        ("https://other.example/b", WebAddress("other.example", "/b")),
    ],
)
def test_redirects_are_read_like_links(location: str, leads_to: WebAddress) -> None:
    assert WebAddress("example.org", "/a/b?q").join(location) == leads_to


@pytest.mark.parametrize(
    "location", ["", "http://example.org/b", "file:///etc/passwd", "//127.0.0.1/b", "https://[::1", "javascript:0"]
)
def test_redirects_elsewhere_are_forbidden(location: str) -> None:
    with pytest.raises(ImageForbidden, match="redirects"):
        WebAddress("example.org", "/a").join(location)
