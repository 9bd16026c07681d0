from pathlib import Path

from stoop_worker.engine_process.build import build
from stoop_worker.engine_process.protocol import EngineSettings, Loading
from tests.support.tiny_model import write_checkpoint


def test_a_ready_child_reports_its_skills_and_its_context(tmp_path: Path) -> None:
    model = str(write_checkpoint(tmp_path))
    settings = EngineSettings(model=model, device="cpu", max_batch=2, pages=128, page_size=16, max_context=960)
    progress: list[Loading] = []
    _, ready = build(settings, lambda outputs: None, progress.append)
    assert set(ready.skills) == {"query", "caption", "detect", "point", "gaze", "chat"}
    assert ready.max_context == 960
    assert progress[0].read > 0
