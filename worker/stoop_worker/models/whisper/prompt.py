"""Checks a request, and turns it into the inputs before the text."""

from dataclasses import dataclass

from stoop_worker.engine.inputs import Input, MediaInput, TokenInput
from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Media, Mel, Refusal, Request, Transcribe
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.config import WhisperConfig
from stoop_worker.models.whisper.vocabulary import ENGLISH, Vocabulary

__all__ = ["Prompt", "build_prompt", "task_ids"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The `inputs` to compute before anything is drawn; the last is the start of the transcript."""

    inputs: tuple[Input, ...]
    task: Transcribe


def build_prompt(request: Request, config: WhisperConfig, vocabulary: Vocabulary, tokenizer: Tokenizer) -> Prompt:
    """Lay out the window, the text before it, and the start; raises `RequestInvalid`."""
    task = request.task
    assert isinstance(task, Transcribe), "the engine refuses every other task"
    if request.adapter is not None:
        raise RequestInvalid(f"this model has no adapters: leave `adapter` out, which was {request.adapter!r}")
    _check_language(task, vocabulary)
    mel = _window(request.media, config)
    before = _before(task, config, vocabulary, tokenizer)
    return Prompt(
        inputs=(MediaInput(mel.digest, config.memory), *map(TokenInput, (*before, vocabulary.start))), task=task
    )


def task_ids(language: str, task: Transcribe, vocabulary: Vocabulary) -> list[int]:
    """Return the ids of the task, which come between the start and the text."""
    chosen = vocabulary.translate if task.translate else vocabulary.transcribe
    known = [vocabulary.languages[language], chosen] if vocabulary.languages else []
    return known if task.timestamps else [*known, vocabulary.no_stamps]


def _window(media: tuple[Media, ...], config: WhisperConfig) -> Mel:
    shape = config.mels, 2 * config.states
    if len(media) != 1 or not isinstance(mel := media[0], Mel) or mel.frames.shape != shape:
        raise RequestInvalid(f"this model takes one window of sound: {shape[0]} mel bands of {shape[1]} frames")
    return mel


def _check_language(task: Transcribe, vocabulary: Vocabulary) -> None:
    languages = vocabulary.languages
    if not languages and task.translate:
        raise RequestInvalid("this model knows only English, and cannot translate", Refusal.UNSUPPORTED_SKILL)
    known = languages or {ENGLISH: 0}
    if task.language is not None and task.language not in known:
        raise RequestInvalid(f"language {task.language!r} is unknown to this model: it knows {', '.join(known)}")


def _before(task: Transcribe, config: WhisperConfig, vocabulary: Vocabulary, tokenizer: Tokenizer) -> list[int]:
    """Return the newest ids of the prompt and the history, which take less than half of the decoder's positions."""
    if not all(0 <= token < config.vocab_size for token in task.history):
        raise RequestInvalid(f"history must be ids from 0 to {config.vocab_size - 1}")
    prompt = tokenizer.tokenize(f" {text}") if (text := (task.prompt or "").strip()) else []
    # the file's timestamps are not special, so a prompt may spell one
    spoken = [*(token for token in prompt if token < vocabulary.end), *task.history]
    most = config.most_tokens // 2 - 1
    return [vocabulary.before, *spoken[-most:]] if spoken else []
