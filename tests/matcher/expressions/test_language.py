"""The filter language: parsing, canonical text, and the columns of errors."""

import inspect
import pickle
from datetime import UTC, datetime
from math import inf

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, filters

from covey.matcher import EventType, Filter, FilterError, FilterSyntaxError, parse
from covey.matcher.expressions.expression import And, Constant, Or, Predicate, Variable
from covey.matcher.expressions.operators import Operator
from covey.matcher.expressions.tokens import TEXT_LIMIT

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "date": "timestamp"}
)


def predicate(text: str) -> Predicate:
    found = parse(text, QUOTE).expression
    assert isinstance(found, Predicate)
    return found


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "true"),
        ("  \n\t ", "true"),
        ("true", "true"),
        ("not true", "false"),
        ("10 > price", "price < 10.0"),
        ("10.5 <= volume", "volume >= 10.5"),
        ("$low - 5 < price", "price > $low - 5"),
        ("true == open", "open == true"),
        ("inf > price", "price < inf"),
        ("price >= -inf", "price >= -inf"),
        ("volume == 10.0", "volume == 10"),
        ("price == -0.0", "price == 0.0"),
        ("price == 9007199254740993", "price == 9007199254740993"),  # no float64, so it stays an integer
        ("volume < 1e300", "volume < inf"),  # beyond every int64
        ("volume == -9223372036854775808", "volume == -9223372036854775808"),
        ("price < $x + 0", "price < $x"),
        ("price < 2.0 * $x", "price < 2 * $x"),
        ("price < $x * 1.01 + 2", "price < 1.01 * $x + 2"),
        ("price < 2 + 1.01*$x - 7", "price < 1.01 * $x - 5"),
        ("price < - $x", "price < -1 * $x"),
        ("price < 3 - $x", "price < -1 * $x + 3"),
        ("price < 1 + 2 - - 3", "price < 6.0"),
        ("price in (1, $x - 1, 1)", "price in (1.0, $x - 1, 1.0)"),
        ("volume not in (3)", "volume not in (3)"),
        ("price between 5 and 1", "price between 5.0 and 1.0"),
        ("not price between $a and $b", "price not between $a and $b"),
        ("firm prefix 'I'", 'firm prefix "I"'),
        ("not firm suffix 'M'", 'firm not suffix "M"'),
        ("firm not contains $part", "firm not contains $part"),
        ("not (firm not contains 'B')", 'firm contains "B"'),
        ("not exists ( price )", "not exists(price)"),
        ("!exists(price)", "not exists(price)"),
        ("not price < 3", "price >= 3.0"),
        ("price < 1 and volume > 2 or open == true", "price < 1.0 and volume > 2 or open == true"),
        ("price < 1 && (volume > 2 || !(open == true))", "price < 1.0 and (volume > 2 or open != true)"),
        ("price < 1 and (volume > 2 and open == true)", "price < 1.0 and volume > 2 and open == true"),
        ("not (price < 1 and (volume > 2 or open == true))", "price >= 1.0 or volume <= 2 and open != true"),
        ("price < 1 and true", "price < 1.0"),
        ("price < 1 and false", "false"),
        ("price < 1 or true", "true"),
        ('date > "2026-01-01"', 'date > "2026-01-01T00:00:00+00:00"'),
        ('date > "2026-01-01T02:00+02:00"', 'date > "2026-01-01T00:00:00+00:00"'),
        ("date > $since - 3600", "date > $since - 3600"),
        ("date > $since + 0.5", "date > $since + 0.5"),
        (r'firm == "a\"b\\c\n\t\r\0\u00e9\U0001D11E"', 'firm == "a\\"b\\\\c\\n\\t\\r\\U00000000é\U0001d11e"'),
        (r"firm == 'it\'s'", 'firm == "it\'s"'),
        ("price < $1 and price > $limit_2", "price < $1 and price > $limit_2"),
    ],
)
def test_text_becomes_canonical(text: str, canonical: str) -> None:
    found = parse(text, QUOTE)
    assert str(found) == canonical
    assert parse(canonical, QUOTE) == found


def test_a_text_parses_to_its_expression() -> None:
    assert predicate("price < 1.01 * $ref - 5") == Predicate(
        "price", Operator.LT, (Variable("ref", 1.01, -5),)
    )
    assert predicate('date == "2026-01-31T12:00:00Z"') == Predicate(
        "date", Operator.EQ, (Constant(datetime(2026, 1, 31, 12, tzinfo=UTC)),)
    )
    assert predicate("price <= inf").operands == (Constant(inf),)
    both = parse("firm == 'IBM' and price < 3 or volume in (1, 2)", QUOTE).expression
    assert isinstance(both, Or)
    assert isinstance(both.parts[0], And)
    assert type(predicate("volume == 3").operands[0].value) is int
    assert type(predicate("price == 3").operands[0].value) is float


def test_keywords_are_recognised_as_whole_words_only() -> None:
    odd = EventType("Odd", {"inf": "float64", "AND": "int64"})
    assert str(parse("inf < inf and AND > 3", odd)) == "inf < inf and AND > 3"
    assert str(parse('firm == "and" or firm == "not"', QUOTE)) == 'firm == "and" or firm == "not"'


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('price << 3 and firm == "', "expected a number or a variable after <", 7),  # the leftmost error
        ("price < ", "expected a number or a variable after <", 8),
        ('price < "x"', "price is float64: expected a number or a variable, not 'x'", 8),
        ("firm == 3", "firm is string: expected a string or a variable, not 3", 8),
        ("3 == firm", "firm is string: expected a string or a variable, not 3", 0),
        ("open == 1", "open is bool: expected true, false or a variable, not 1", 8),
        ("open ==", "expected true, false or a variable after ==", 7),
        (
            'date < "soon"',
            'date is timestamp: expected a time such as "2026-01-31T12:00:00" or a variable, not \'soon\'',
            7,
        ),
        (
            "pirce < 3",
            "Quote has no attribute 'pirce'; it has firm, price, volume, open, date (did you mean price?)",
            0,
        ),
        ("price < 3 and xyz > 2", "Quote has no attribute 'xyz'; it has firm, price, volume, open, date", 14),
        (
            "price < volume",
            "expected a number or a variable after < (attributes are not compared with each other)",
            8,
        ),
        ("price = 3", "= is no operator: expected == to compare", 6),
        ("price < = 3", "expected a number or a variable after < (for <= leave no space)", 8),
        ("price 3", "expected an operator after price: == != < <= > >= in between", 6),
        ("firm", "expected an operator after firm: == != < <= > >= in between prefix suffix contains", 4),
        ("open", "expected an operator after open: == or !=, as in open == true", 4),
        ("open < true", "open is bool: expected == or !=, not <", 5),
        ("price prefix 'x'", "price is float64: prefix needs a string attribute", 6),
        ("price not < 3", "expected in, between, prefix, suffix, contains after not", 10),
        ("price in 3", "expected ( after in", 9),
        ("price in (1, )", "expected a number or a variable after ,", 13),
        ("price in (1 2)", "expected ) or ,", 12),
        ("price between 1 or 2", "expected and, between the two ends of between", 16),
        ("price < 3)", "expected and, or or the end of the filter", 9),
        ("(price < 3", "this ( is never closed: expected )", 0),
        ("open == true and ((price < 3)", "this ( is never closed: expected )", 17),
        ("(price < 3 price", "expected and, or, ) or the end of the filter", 11),
        ("price < 3 AND volume > 2", "expected and, or or the end of the filter (did you mean and?)", 10),
        ("price < 3 & volume > 2", "expected and, or or the end of the filter (did you mean and?)", 10),
        ("and price < 3", "expected a predicate, such as firm == ..., not, or (", 0),
        ("price < 3 and", "expected a predicate, such as firm == ..., not, or (, after and", 13),
        ("()", "expected a predicate, such as firm == ..., not, or (, after (", 1),
        ("3", "expected a comparison: == != < <= > >=", 1),
        ("3 < 5", "expected an attribute of Quote, after <", 4),
        ("exists", "expected an attribute of Quote, after exists", 6),
        ("exists(price", "expected )", 12),
        ("price < 2 * 3", "expected a variable after *", 12),
        ("price < $x * $y", "expected a number after *", 13),
        ("price < $x + $y", "expected at most one variable in an operand", 13),
        ("price < inf - inf", "price is float64: expected a number that is not NaN, not nan", 8),
        ("price < 0 * $x", "variable $x: scale 0, expected a number other than 0", 8),
        ("price < $x + inf", "variable $x: offset inf, expected a finite number", 8),
        ("firm == $x - 3", "firm is string: expected $x as it is", 8),
        ("date < 2 * $x", "date is timestamp: expected $x as it is, plus or minus seconds", 7),
        ("date < $x + 1e300", "variable $x: offset 1e+300 s, expected at most 86400000000000 s", 7),
        (
            "price < $x and firm == $x",
            "variable $x is compared with price (float64) and with firm (string): "
            "expected attributes of one kind",
            23,
        ),
        ("volume < 99999999999999999999", "expected an integer of 64 bits (1e30 is a float)", 9),
        (
            "volume < 9223372036854775808",
            "volume is int64: expected an integer of 64 bits, or a float, not 9223372036854775808",
            9,
        ),
        ("price < 1e999", "expected a number within float64 (inf is infinity)", 8),
        ("price < 12abc", "expected the number to end here", 10),
        ("price < $", "expected the name of a variable after $", 9),
        ("price @ 3", "unexpected character '@'", 6),
        ('firm == "abc', 'this string is never closed: expected "', 8),
        (r'firm == "a\qb"', r"unknown escape \q", 10),
        (r'firm == "\U00110000"', r"unknown escape \U00110000", 9),
        (r'firm == "\ud800"', r"firm is string: expected a string without lone surrogates, not '\ud800'", 8),
    ],
)  # fmt: skip
def test_errors_name_what_was_expected_and_its_column(text: str, message: str, column: int) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, QUOTE)
    assert caught.value.message == message
    assert caught.value.column == column
    assert caught.value.text == text
    shown = str(caught.value).split("\n")
    assert shown == [message, f"  {text}", f"  {' ' * column}^"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.column) == (str(caught.value), column)


def test_a_long_text_is_shown_near_the_error() -> None:
    text = " and ".join(["price < 3"] * 100) + "\n and price << 3"
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, QUOTE)
    assert str(caught.value).split("\n")[1:] == ["   and price << 3", "  " + " " * 12 + "^"]
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text.replace("\n", " "), QUOTE)
    _, line, caret = str(caught.value).split("\n")
    assert len(line) < 120
    assert line[caret.index("^") :] == "< 3"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "not " * 200_000 + "price < 3)",
        "(" * 201 + "price < 3" + ")" * 201,
        "not (" * 201 + "price < 3" + ")" * 201,
        "price < " + "-" * 100_000,
        "price < " + "1 + " * 50_000,
        'firm == "' + "\\" * 500_001,
        "price < " + "1" * 1_000_000,
        "price in (" + "1," * 30_000,
        "a" * 1_000_000,
        "price < 3 and " * (TEXT_LIMIT // 14 + 1) + "open == true",
    ],
    ids=range(11),
)
def test_texts_over_the_limits_are_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text, QUOTE)
    assert len(caught.value.message) < 1_200_000
    assert len(str(caught.value).split("\n")) == 3


def _at_depth(frames: int, work: object) -> None:
    if frames:
        _at_depth(frames - 1, work)
    else:
        work()


def test_filters_at_the_limits_parse() -> None:
    deep = "(open == true or volume < 3 and " * 200 + "price < $x" + ")" * 200
    f = parse(deep, QUOTE)

    def use() -> None:
        again = parse(str(f), QUOTE)
        assert again == f
        assert hash(again) == hash(f)
        assert pickle.loads(pickle.dumps(f)) == f
        assert f.matches({"price": 1.0, "volume": 1}, {"x": 2})
        assert not f.matches({"price": 3.0, "volume": 1}, {"x": 2})
        assert f.substitute({"x": 2}).variables == ()
        structure, operands = f.lift()
        assert len(operands) == 401
        assert f.substitute({"x": 2}) == structure.substitute(f.lift_values({"x": 2}))
        assert f.boxes() is None
        assert f.covers(again)
        assert f.intersects(again)
        assert Filter(QUOTE, f.expression) == f

    base = len(inspect.stack(0))
    _at_depth(max(0, 300 - base), use)
    wide = parse(" or ".join(f"volume == {i}" for i in range(10_000)), QUOTE)
    assert wide.matches({"volume": 9_999})
    assert wide.boxes() is None
    assert wide.covers(parse("volume between 17 and 9999", QUOTE))
    assert not wide.covers(parse("volume between 17 and 10000", QUOTE))


def test_text_must_be_text() -> None:
    with pytest.raises(FilterError, match="expected text"):
        parse(b"price < 3", QUOTE)


def test_parsed_texts_are_cached_per_event_type() -> None:
    other = EventType("Quote", {"price": "int64"})
    assert parse("price < 3", QUOTE) is parse("price < 3", QUOTE)
    assert parse("price < 3", other) != parse("price < 3", QUOTE)
    assert parse("price < 3", other).event_type == other


@examples(400)
@given(st.data())
def test_the_text_of_a_filter_parses_to_an_equal_filter(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    f = data.draw(filters(event_type))
    again = parse(str(f), event_type)
    assert again == f
    assert str(again) == str(f)
    assert again.variables == f.variables


@examples(400)
@given(st.text(alphabet="price<>=!()&|$x123.\"'\\ andortfe*+-,\n", max_size=40))
def test_any_text_parses_or_raises_a_syntax_error(text: str) -> None:
    try:
        f = parse(text, QUOTE)
    except FilterSyntaxError as error:
        column = error.column
    else:
        column = 0
        assert parse(str(f), QUOTE) == f
    assert 0 <= column <= len(text)
