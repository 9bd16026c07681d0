"""The signatures are those of botocore's own signer."""

from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st

from stoop_worker.jobs.fetch.signature import signed_headers

HOST = "photos.s3.eu-west-1.amazonaws.com"
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)


@given(key=TEXT, version=TEXT | st.none(), token=st.from_regex(r"[A-Za-z0-9/+=]{1,40}", fullmatch=True) | st.none())
def test_any_key_version_and_token(key: str, version: str | None, token: str | None) -> None:
    path = f"/{quote(key, safe='/~')}"
    check(path, f"versionId={quote(version, safe='')}" if version else "", ReadOnlyCredentials("ID", "secret", token))


@pytest.mark.parametrize(("secret", "region"), [("one", "us-east-1"), ("other", "us-east-1"), ("one", "eu-north-1")])
def test_each_secret_and_region_has_its_own_key(secret: str, region: str) -> None:
    check("/key", "", ReadOnlyCredentials("ID", secret, None), region)


def check(path: str, query: str, credentials: ReadOnlyCredentials, region: str = "us-east-1") -> None:
    theirs = AWSRequest("GET", f"https://{HOST}{path}{'?' if query else ''}{query}")
    S3SigV4Auth(credentials, "s3", region).add_auth(theirs)
    date = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = signed_headers(HOST, path, query, region=region, credentials=credentials, now=date.timestamp())
    assert ours == dict(theirs.headers.items())
