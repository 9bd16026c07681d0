"""The rule that removes uploads: a store accepts it, and it covers the uploads of clients."""

import json
from pathlib import Path

import botocore.session
from botocore.validate import ParamValidator

from stoop.config import ProducerConfig

RULES = json.loads((Path(__file__).parents[2] / "deploy" / "uploads-lifecycle.json").read_text())


def test_the_store_takes_the_file_as_it_is() -> None:
    service = botocore.session.get_session().get_service_model("s3")
    shape = service.operation_model("PutBucketLifecycleConfiguration").input_shape
    report = ParamValidator().validate({"Bucket": "photos", "LifecycleConfiguration": RULES}, shape)
    assert not report.has_errors(), report.generate_report()


def test_it_removes_uploads_and_nothing_else() -> None:
    [rule] = RULES["Rules"]
    assert rule["Filter"] == {"Prefix": ProducerConfig(redis_url="redis://localhost").upload_prefix}
    assert rule["Expiration"]["Days"] >= 2, "an image that is used is put again after a day"
