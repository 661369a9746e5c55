"""Topic filters of MQTT, and templates of topics."""

import pytest

from covey.bridge.topics import Template, check_filter, levels_of, matches


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("+/+", "/b", True),
        ("+", "/b", False),
        ("a/+/c", "a/b b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "b", False),
        ("#", "a//ü", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("$share/group/a/+", "a/b", True),
    ],
)
def test_matching_is_that_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(levels_of(check_filter(topic_filter)), topic.split("/")) is expected


@pytest.mark.parametrize(
    "text",
    ["", "a/#/b", "a#", "a/b+", "++", "a\n", "a\0", "$share/g", "$share//a", "$share/+/a", "ä" * 40_000],
)
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(ValueError, match="expected a topic filter of MQTT, such as"):
        check_filter(text)


@pytest.mark.parametrize("text", ["", "a/+", "a/{b}/#", "$SYS/{a}", "a/{b", "a/b}", "a/{{b}}"])
def test_what_is_no_template(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        Template(text)


def test_a_template_has_the_values_of_attributes() -> None:
    template = Template("plant/{line}/{sensor}-{on}")
    assert template.names == ["line", "sensor", "on"]
    assert template.topic({"line": 3, "sensor": "öl 1", "on": True}) == "plant/3/öl 1-true"
    assert template.levels == ["plant", None, None]
    assert matches(["plant", "+", "#"], template.levels)
    assert matches(["plant", "3", "x-true"], template.levels)
    assert not matches(["plant", "+"], template.levels)


@pytest.mark.parametrize("value", [None, "", "a/b", "#", "a+", "a\nb", "\ufffe", "\u0085", "ä" * 40_000])
def test_a_value_adds_no_level_and_breaks_no_connection(value: str | None) -> None:
    with pytest.raises(ValueError, match="expected"):
        Template("a/{b}").topic({"b": value})


def test_no_value_leads_to_the_topics_of_the_broker() -> None:
    with pytest.raises(ValueError, match="no \\$ first"):
        Template("{a}/load").topic({"a": "$SYS"})
