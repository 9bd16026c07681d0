"""Chat templates: the text that transformers renders, and no harm by hostile ones."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import transformers

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading import chat_template
from stoop_worker.models.loading.chat_template import ChatTemplate, TemplateError
from tests.support.tiny_decoder import LLAMA_TEMPLATE, QWEN_TEMPLATE, write_language

SPOKEN: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "  Hello there \n"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<b>&amp;</b> \"quoted\" 'so'"}],
    [
        {"role": "user", "content": "Höhe? 山の高さ 🙂"},
        {"role": "assistant", "content": "8,848 m"},
        {"role": "user", "content": "{{ bos_token }} {% raw %}"},
    ],
]
TOOLS_TEMPLATE = """
{%- macro shown(value, depth=1) %}{{ value | tojson(indent=depth) }}{% endmacro -%}
{%- set seen = namespace(count=0) %}
{%- for message in messages %}
    {%- if loop.index0 == 3 %}{% break %}{% endif %}
    {%- set seen.count = seen.count + message.content|length %}
    {{- loop.index ~ ':' ~ message['role'].upper() + ' ' + message.content.replace('e', '3').split(' ')|join('_') }}
    {%- generation %}{{ message | tojson }}{% endgeneration %}
{% endfor %}
{{ seen.count }} {{ shown(messages[0]) }} {{ ('a' * 3)[1:] }} {{ messages[-1:] | list | string }}
"""


@pytest.mark.parametrize("messages", SPOKEN, ids=str)
@pytest.mark.parametrize("template", [LLAMA_TEMPLATE, QWEN_TEMPLATE, TOOLS_TEMPLATE], ids=["llama", "qwen", "others"])
def test_it_renders_the_same_text_as_transformers(
    tmp_path: Path, template: str, messages: list[dict[str, Any]]
) -> None:
    write_language(tmp_path, template)
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    today = date(2026, 1, 31)
    expected = oracle.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string=today.strftime("%d %b %Y")
    )
    assert ChatTemplate.read(tmp_path).render(messages, today=today) == expected


def test_without_a_date_the_text_is_the_same_on_any_day() -> None:
    assert "26 Jul 2024" in ChatTemplate(LLAMA_TEMPLATE, {"bos_token": "<s>"}).render(SPOKEN[0])


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"chat_template.jinja": "A", "chat_template.json": '{"chat_template": "B"}'}, "A"),
        ({"chat_template.json": '{"chat_template": "B"}', "tokenizer_config.json": '{"chat_template": "C"}'}, "B"),
        ({"chat_template.json": "{}", "tokenizer_config.json": '{"chat_template": "C"}'}, "C"),
        ({"tokenizer_config.json": '{"chat_template": "C{{ eos_token }}", "eos_token": {"content": "</s>"}}'}, "C</s>"),
        ({"tokenizer_config.json": '{"chat_template": [{"name": "default", "template": "D"}]}'}, "D"),
    ],
)
def test_a_template_is_found_where_models_have_it(tmp_path: Path, written: dict[str, str], found: str) -> None:
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    assert ChatTemplate.read(tmp_path).render(SPOKEN[0]) == found


def test_a_model_without_a_template_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no chat template"):
        ChatTemplate.read(tmp_path)


@pytest.mark.parametrize(
    "source",
    ["{% for message in messages %}", "{{ messages | no_such_filter }}", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"],
    ids=["unfinished", "unknown-filter", "deep"],
)
def test_a_template_that_does_not_compile_fails_the_load(source: str) -> None:
    with pytest.raises(CheckpointError, match="chat template does not compile"):
        ChatTemplate(source)


def test_a_template_may_refuse_messages_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(SPOKEN[0])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{% include 'other' %}",
        "{% import 'os' as os %}",
        "{% set s = namespace(a='aaaaaaaa') %}{% for i in range(64) %}{% set s.a = s.a + s.a %}{% endfor %}",
        "{% set s = namespace(a='aaaaaaaa') %}{% for i in range(64) %}{% set s.a = s.a ~ s.a %}{% endfor %}",
        "{% set s = namespace(a='aaaa') %}{% for i in range(64) %}{% set s.a = s.a|replace('a', 'aaaa') %}{% endfor %}",
        "{% set s = namespace(a='aaaa') %}{% for i in range(64) %}{% set s.a = s.a.replace('a', 'aaaa') %}{% endfor %}",
        "{% set s = namespace(a=[1]) %}{% for i in range(64) %}{% set s.a = [s.a, s.a] %}{% endfor %}{{ s.a }}",
        "{% set s = namespace(a=[1]) %}{% for i in range(64) %}{% set s.a = [s.a, s.a] %}{% endfor %}{{ s.a|tojson }}",
        "{% set s = namespace(a=['aaaa'] * 9999) %}{% for i in range(99999) %}{% set t = s.a|join %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"
        "{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{{ again() }}{% endmacro %}{{ again() }}",
        "{% set _turn = namespace %}{% for a in range(99999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{{ ('a' * 99999).replace('a', 'b' * 99999, -1) }}",
        "{{ 'a'.encode() * 1000000000 }}",
        "{{ '%1000000000d'.encode() % 1 }}",
        "{{ '%1000000000d' is odd }}",
        "{{ (1).to_bytes(1000000000, 'big') }}",
        "{{ 'a' | indent(1000000000) }}",
        "{{ [1] | batch(1000000000, 1) | list }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ 1.5 | round(99999999, 'ceil') }}",
        "{{ ([[1] * 99999] * 9999) | sum(start=[]) }}",
        "{{ ([1] * 9999) | tojson(separators=('a' * 99999, ':')) }}",
        "{{ ([1] * 9999) | tojson(indent='a' * 99999) }}",
        "{% for i in range(99999) %}{% set s = range(99999) | select('odd') | sum %}{% endfor %}",
        "{% set x = ('f' * 4000000) | int(0, 16) %}{% for i in range(9999) %}{% set y = x // 3 %}{% endfor %}",
    ],
)
def test_a_hostile_template_is_stopped(source: str) -> None:
    with pytest.raises((CheckpointError, TemplateError)):
        ChatTemplate(source).render(SPOKEN[0])


@pytest.mark.parametrize(
    "use",
    [
        *("x.a == x.b", "[x.a].index(x.b)", "x.a in [x.b]", "x.a is eq(x.b)", "[x.a] | select('eq', x.b) | list"),
        *(
            "[x.a, x.b] | map('default') | sort",
            "{x.a: 1}",
            "messages[0][x.a]",
            "messages[0].get(x.a)",
            "dict([(x.a, 1)])",
        ),
        *("[x.a] | unique | list", "x.a | upper", "x.a is lower", "'a'.replace('a', x.a)", "raise_exception(x.a)"),
    ],
)
def test_a_value_that_contains_itself_many_times_costs_each_time(use: str) -> None:
    doubled = "{% set x.a = (x.a, x.a) %}{% set x.b = (x.b, x.b) %}"
    source = (
        "{% set x = namespace(a=(1,), b=(1,)) %}{% for i in range(64) %}" + doubled + "{% endfor %}{{ " + use + " }}"
    )
    with pytest.raises(TemplateError, match=r"does not finish|unsafe"):
        ChatTemplate(source).render(SPOKEN[0])


def test_a_long_chat_stays_far_below_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "_MOST_WORK", chat_template._MOST_WORK // 2)
    turns = [{"role": ("user", "assistant")[number % 2], "content": "a" * 1024} for number in range(1023)]
    for template in (LLAMA_TEMPLATE, QWEN_TEMPLATE):
        assert len(ChatTemplate(template, {"bos_token": "<s>"}).render(turns)) > 1023 * 1024


@pytest.mark.parametrize("name", ["raise_exception", "messages.__init__", "cycler.__init__", "range", "namespace"])
def test_a_template_reaches_nothing_of_python(name: str) -> None:
    source = "".join("{{ " + f"{name}.__{hidden}__" + " }}" for hidden in ("globals", "self", "code"))
    try:
        assert ChatTemplate(source).render(SPOKEN[0]) == ""
    except TemplateError as error:
        assert "undefined" in str(error) or "unsafe" in str(error)


def test_too_long_a_text_is_refused() -> None:
    with pytest.raises(TemplateError, match="characters: at most"):
        ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": "a" * (3 << 20)}])
