from covey.matcher.evaluation.accounts import MOST_OPERATORS, Accounts


def test_names_that_nobody_has_push_out_each_other_and_no_operator() -> None:
    accounts = Accounts()
    accounts.of("within").calls = 1
    for number in range(3 * MOST_OPERATORS):
        accounts.of(f"nowhere{number}").undecided += 1
    assert len(accounts.by_operator) == MOST_OPERATORS
    assert accounts.of("within").calls == 1
    for number in range(MOST_OPERATORS):
        accounts.of(f"known{number}").calls = 1
    assert len(accounts.by_operator) == MOST_OPERATORS
    assert "within" not in accounts.by_operator
