import pytest

from benchmarks.queue import chat

pytest.importorskip("transformers")


def test_chats_go_through_the_queue(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("chat")
    load = ["--concurrency", "4", "--rows", "2", "--requests", "6"]
    sizes = [*load, "--prompt", "40", "--answer", "4", "--spread", "0.5"]
    place = ["--folder", str(folder), "--out", str(folder / "figures.json")]
    document = chat.main(["llama-1b-tiny", "--device", "cpu", "--dtype", "fp32", "--threads", "1", *sizes, *place])
    (figures,) = document["figures"]
    assert (document["rows"], figures["requests"]) == (2, 8)
    ((alone,),) = (each["figures"] for each in document["engine_alone"])
    assert document["share_of_engine"] == pytest.approx(figures["tokens_per_second"] / alone["tokens_per_second"])
