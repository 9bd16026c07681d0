"""`stoop gaze` from the command line through the queue to the model, and the drawing of its answer."""

import json
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from stoop import Client
from stoop.cli.app import app
from tests.flow.conftest import Service

EYE = (0.5, 0.25)


def test_the_command_answers_as_the_client_does_and_draws_it(service: Service, tmp_path: Path) -> None:
    photo, drawing = tmp_path / "photo.png", tmp_path / "gaze.png"
    photo.write_bytes(service.picture.encoded)
    where = [str(photo), *(str(place) for place in EYE)]
    done = CliRunner().invoke(app, ["gaze", *where, "--json", "--draw", str(drawing)], env=service.variables)
    assert done.exit_code == 0, done.output
    with Client(service.config) as client:
        expected = client.gaze(service.image, EYE)
    assert json.loads(done.stdout)["output"] == expected
    with Image.open(photo) as seen, Image.open(drawing) as drawn:
        assert drawn.size == seen.size
        assert np.array_equal(drawn, seen) == (expected["gaze"] is None)
