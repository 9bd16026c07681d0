"""Messages that differ in names and numbers only are one cause."""

from stoop.gateway.dead_causes import CauseWatch, pattern_of
from stoop.operator.port import DeadLetter, Operator


class Few:
    """An operator with these messages of dead letters."""

    def __init__(self, *messages: str) -> None:
        self._letters = [
            DeadLetter(f"{at}-0", "job", "bulk", 1, 0, "", "internal", message, at, b"")
            for at, message in enumerate(messages)
        ]

    async def failures(self, count: int) -> list[DeadLetter]:
        return self._letters[:count]


async def causes(*messages: str) -> dict[str, int]:
    operator: Operator = Few(*messages)  # type: ignore[assignment]
    return {cause.message: cause.count for cause in (await CauseWatch(operator).look()).causes}


async def test_letters_are_grouped_regardless_of_names_and_numbers() -> None:
    found = await causes(
        "s3://photos/3.jpg timed out after 30 s",
        "s3://photos/12.jpg timed out after 9.5 s",
        "worker 0a1b2c3d-4e5f lost 'the 3rd' job",
        "worker ffff0000aaaa lost 'a' job",
        "no digits",
    )
    assert found == {
        "‹address› timed out after ‹n› s": 2,
        "worker ‹id› lost ‹text› job": 2,
        "no digits": 1,
    }


def test_a_pattern_is_bounded() -> None:
    assert len(pattern_of("x" * 10_000)) == 200
