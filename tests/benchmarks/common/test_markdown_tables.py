from hoptrain.benchmarks.common.tables import WIDTH, markdown


def test_a_table():
    assert markdown([{"a": 1, "b": None}, {"a": "x|y", "c": 2}]) == "| a | b | c |\n| --- | --- | --- |\n| 1 |  |  |\n| x/y |  | 2 |\n"
    assert markdown([]) == ""


def test_a_wide_table_is_wrapped():
    row = {"system": "hoptrain", "cell": "sage"} | {f"column {number} s": "x" * 20 for number in range(9)}
    tables = markdown([row, row], keys=2).split("\n\n")
    assert len(tables) == 3
    assert max(map(len, "\n".join(tables).splitlines())) <= WIDTH
    heads = [[name.strip() for name in table.splitlines()[0].strip("|").split("|")] for table in tables]
    assert all(head[:2] == ["system", "cell"] for head in heads)
    assert [name for head in heads for name in head[2:]] == list(row)[2:]
    long = {"system": "hoptrain", "why": "x" * 200, "s": "1"}
    assert len(markdown([long]).split("\n\n")) == 2  # a column wider than the page gets its own table
