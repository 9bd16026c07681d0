import os
import subprocess
from pathlib import Path

from stoop.cli.first_request import first_request
from stoop.cli.up import welcome, write_environment
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3


def test_another_shell_reaches_the_servers_by_sourcing_a_file(tmp_path: Path) -> None:
    redis = EmbeddedRedis(url="unix:///tmp/a b/redis.sock")
    s3 = EmbeddedS3("http://127.0.0.1:9", "KEY", "it's secret; touch /tmp/x", "us-east-1", "bucket")
    path = write_environment(tmp_path / "environment", redis, s3, {"model-name": "my demo"})
    assert path.stat().st_mode & 0o077 == 0, "it holds a key"
    names = (
        "STOOP_REDIS_URL",
        "STOOP_BUCKET",
        "STOOP_S3_ENDPOINT",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "STOOP_MODEL_NAME",
    )
    shown = "; ".join(f'printf "%s\\n" "${name}"' for name in names)
    sourced = subprocess.run(
        ["bash", "-euc", f"source '{path}'; {shown}"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sourced.stdout.splitlines() == [redis.url, s3.bucket, s3.endpoint, s3.access_key, s3.secret_key, "my demo"]


def test_the_commands_to_try_carry_a_key_if_the_gateway_asks_for_one(tmp_path: Path) -> None:
    first = first_request("demo", ("query",), "s3://stoop/a.png")
    shown = {keys: welcome("http://here", first, tmp_path, keys=keys) for keys in (True, False)}
    for keys, text in shown.items():
        [curl] = [line for line in text.splitlines() if line.startswith("curl ")]
        # the shell puts the key in
        sent = subprocess.run(
            ["bash", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}; KEY=sk-1; {curl}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert ("Authorization: Bearer sk-1" in sent) is keys
        assert ("api_key='$KEY'" in text) is keys
