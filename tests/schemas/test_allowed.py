import pytest

from stoop_schemas.allowed import AllowedBuckets

MIXED = AllowedBuckets.read(["public", "acme=acme-images", "acme=shared-images/acme", "rival=rival-images/in"])
TENANTS = AllowedBuckets.read(["acme=acme-images"])


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_without_entries_everything_is_allowed(tenant: str | None) -> None:
    assert AllowedBuckets.read([]).permits("any/key", tenant)


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        ("bucket", True),
        ("bucket/", True),
        ("bucket/tenant", True),
        ("bucket/tenant/", True),
        ("bucket/tenant/key", True),
        ("bucket/ten", False),
        ("bucket/tenant/key/more", False),
        ("bucke", False),
        ("other", False),
    ],
)
def test_prefixes_end_at_a_step(entry: str, allowed: bool) -> None:
    assert AllowedBuckets.read(["elsewhere", entry]).permits("bucket/tenant/key", None) is allowed


@pytest.mark.parametrize(
    ("rules", "tenant", "path", "allowed"),
    [
        (MIXED, None, "public/a", True),
        (MIXED, "guest", "public/a", True),
        (MIXED, None, "acme-images/a", False),
        (MIXED, "acme", "acme-images/a", True),
        (MIXED, "acme", "shared-images/acme/a", True),
        (MIXED, "acme", "shared-images/rival/a", False),
        (MIXED, "acme", "public/a", False),
        (MIXED, "rival", "acme-images/a", False),
        (MIXED, "rival", "rival-images/in/a", True),
        (MIXED, "rival", "rival-images/internal", False),
        (MIXED, "", "public/a", True),
        (TENANTS, None, "acme-images/a", False),
        (TENANTS, "guest", "acme-images/a", False),
        (TENANTS, "acme", "acme-images/a", True),
    ],
)
def test_tenants_read_their_own_and_the_others_the_general(
    rules: AllowedBuckets, tenant: str | None, path: str, allowed: bool
) -> None:
    assert rules.permits(path, tenant) is allowed


@pytest.mark.parametrize("path", ["bucket/tenant/../other", "bucket/tenant/./key", "bucket/tenant/.."])
def test_no_step_leads_out_of_a_prefix(path: str) -> None:
    assert not AllowedBuckets.read(["bucket/tenant"]).permits(path, None)


def test_an_equals_sign_in_a_prefix_names_no_tenant() -> None:
    rules = AllowedBuckets.read(["bucket/day=1", "acme=bucket/day=2"])
    assert rules.permits("bucket/day=1/a", None)
    assert rules.permits("bucket/day=2/a", "acme")
    assert not rules.permits("bucket/day=2/a", "bucket/day")


@pytest.mark.parametrize("entry", ["", "=bucket", "a b=bucket", "tenant=", "s3://bucket", "b", "bucket/../other"])
def test_other_entries_are_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="must be bucket"):
        AllowedBuckets.read([entry])
