from hypothesis import given
from hypothesis import strategies as st

from hangscope.align.waiting import components

nx = __import__("pytest").importorskip("networkx")


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30).map(
            lambda e: (n, e)
        )
    )
)
def test_components_are_those_of_networkx_in_reverse_topological_order(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, pairs = graph
    edges = [[b for a, b in pairs if a == node] for node in range(count)]
    found = components(edges)
    reference = nx.DiGraph(pairs)
    reference.add_nodes_from(range(count))
    assert sorted(map(tuple, found)) == sorted(
        tuple(sorted(c)) for c in nx.strongly_connected_components(reference)
    )
    place = {node: i for i, part in enumerate(found) for node in part}
    assert all(place[b] <= place[a] for a, b in pairs)


def test_a_chain_of_twenty_thousand_nodes_needs_no_recursion() -> None:
    assert len(components([[i + 1] if i < 19_999 else [] for i in range(20_000)])) == 20_000
