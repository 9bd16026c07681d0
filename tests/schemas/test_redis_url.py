import pytest

from stoop_schemas.redis_url import RedisUrl, read_redis_url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", "localhost:6379"),
        ("redis://ada:hidden@redis.example:7000/2", "redis.example:7000"),
        ("rediss://:hidden@redis.example/0?ssl_ca_certs=ca.pem", "redis.example:6379"),
        ("redis://redis.example/", "redis.example:6379"),
        ("redis://redis.example/15/", "redis.example:6379"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock"),
        ("unix://ada:hidden@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_one_server_is_left_to_redis_py(url: str, address: str) -> None:
    read = read_redis_url(url)
    assert (read.kind, read.url, read.address) == ("server", url, address)


def test_sentinels() -> None:
    read = read_redis_url("redis+sentinel://ada:hid%40den@one,two:7001/jobs/3?sentinel_password=hush")
    assert (read.kind, read.hosts, read.master, read.db) == ("sentinel", (("one", 26379), ("two", 7001)), "jobs", 3)
    assert read.login == {"username": "ada", "password": "hid@den"}
    assert read.sentinel_login == {"password": "hush"}
    assert read.address == "jobs of one:26379,two:7001"


def test_a_cluster_by_tls() -> None:
    read = read_redis_url("rediss+cluster://:hidden@[::1]:7000,two/?ssl_ca_certs=/etc/ca.pem")
    assert (read.kind, read.hosts) == ("cluster", (("::1", 7000), ("two", 6379)))
    assert read.login == {"password": "hidden", "ssl": True, "ssl_ca_certs": "/etc/ca.pem"}


def test_sentinels_by_tls_are_asked_by_tls_too() -> None:
    read = read_redis_url("rediss+sentinel://one/jobs?ssl_ca_certs=/etc/ca.pem")
    assert read.login == read.sentinel_login == {"ssl": True, "ssl_ca_certs": "/etc/ca.pem"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must be"),
        ("http://hidden", "must be"),
        ("redis+proxy://hidden", "must be"),
        ("redis://hidden:port/0", "cannot be read"),
        ("redis://[hidden", "cannot be read"),
        ("redis://redis.example:1/hidden", "database must be a number"),
        ("redis://redis.example/1/2", "database must be a number"),
        ("rediss://redis.example/-1", "database must be a number"),
        ("redis://", "names no host"),
        ("rediss:///0", "names no host"),
        ("redis://:hidden@:7000/0", "names no host"),
        ("unix://", "the socket by its whole path"),
        ("unix:///", "the socket by its whole path"),
        ("unix://hidden/redis.sock", "the socket by its whole path"),
        ("redis+sentinel://hidden", "name the Sentinels' master"),
        ("redis+sentinel://hidden/jobs/x", "name the Sentinels' master"),
        ("redis+sentinel://:hidden@/jobs", "name its hosts"),
        ("redis+sentinel://a,,b/hidden", "name its hosts"),
        ("redis+sentinel://a:99999/hidden", "name its hosts"),
        ("redis+cluster://ada:hid/den@a", "no databases"),
        ("redis+cluster://a/1", "no databases"),
        ("redis+cluster://a?hidden=1", "accepts only these options here: none"),
        ("redis+cluster://a?hidden", "cannot be read"),
        ("redis+cluster://a?ssl_ca_certs=x", "only these"),
        ("rediss+cluster://a?ssl_cert_reqs=none", "only these"),
    ],
)
def test_other_urls_are_refused_without_a_word_of_them(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        read_redis_url(url)
    assert "hid" not in str(raised.value)


def test_secrets_stay_out_of_repr() -> None:
    read: RedisUrl = read_redis_url("redis+sentinel://ada:hidden@one/jobs?sentinel_password=hidden")
    assert "hidden" not in repr(read)
