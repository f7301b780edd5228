from kernelwright.agent.contracts.size_names import SizeNames


def relations(rows, problem=None):
    return [relation.text for relation in SizeNames(rows, problem or {}).relations()]


def test_a_size_has_the_name_that_the_problem_gives_it():
    names = SizeNames([("x_dim0", (5, 181, 15)), ("x_dim1", (64, 64, 64))], {"rows": (5, 181, 15)})
    assert names.name((5, 181, 15)) == "rows"
    assert names.name((64, 64, 64)) == 64


def test_extents_that_were_always_equal_are_one_size():
    names = SizeNames([("q_dim1", (5, 7, 9)), ("k_dim1", (5, 7, 9)), ("v_dim1", (5, 7, 8))], {})
    assert list(names.rows) == ["q_dim1", "v_dim1"]


def test_a_multiple_a_product_a_sum_and_a_constant_are_seen():
    a, b = (2, 3, 7, 11), (5, 4, 9, 2)
    assert relations([("a", a), ("b", b), ("c", tuple(2 * x for x in a))]) == ["c == 2 * a"]
    assert relations([("c", tuple(2 * x for x in a)), ("b", b), ("a", a)]) == [
        "c % 2 == 0",
        "c == 2 * a",
    ]
    assert relations(
        [("a", a), ("b", b), ("c", tuple(x * y for x, y in zip(a, b, strict=True)))]
    ) == ["c == a * b"]
    assert relations(
        [("a", a), ("b", b), ("c", tuple(x + y for x, y in zip(a, b, strict=True)))]
    ) == ["c == a + b"]
    assert relations([("a", a), ("b", b), ("c", tuple(x - 1 for x in a))]) == ["c == a - 1"]


def test_independent_sizes_have_no_relation():
    assert relations([("a", (2, 3, 7, 11)), ("b", (5, 4, 9, 2))]) == []


def test_a_size_that_was_always_even_stays_even():
    assert relations([("a", (4, 6, 14, 22))]) == ["a % 2 == 0"]


def test_two_values_are_too_few_for_a_constant():
    assert relations([("a", (2, 3)), ("b", (5, 6))]) == []


def test_an_output_is_described_by_what_it_is_computed_from():
    names = SizeNames([("a", (4, 6, 14))], {})
    assert names.describe((2, 3, 7)) == "a // 2"
    assert names.describe((1, 9, 4)) == "varies"
