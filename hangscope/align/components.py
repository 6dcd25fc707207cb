"""Strongly connected components of a directed graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def components(edges: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the strongly connected components, each after the components that it reaches (Tarjan, iterative, linear).

    `edges[i]` holds the targets of node i.
    """
    count = len(edges)
    number, lowest = [-1] * count, [0] * count  # of a node whose component is known, `lowest` is `count`
    stack: list[int] = []
    result: list[list[int]] = []
    found = 0
    for start in range(count):
        work = [(start, iter(edges[start]))] if number[start] < 0 else []
        while work:
            node, targets = work[-1]
            if number[node] < 0:
                number[node] = lowest[node] = found
                found += 1
                stack.append(node)
            for target in targets:
                if number[target] < 0:
                    work.append((target, iter(edges[target])))
                    break
                lowest[node] = min(lowest[node], lowest[target])
            else:
                work.pop()
                if lowest[node] == number[node]:
                    part: list[int] = []
                    while node not in part[-1:]:
                        part.append(stack.pop())
                        lowest[part[-1]] = count
                    result.append(sorted(part))
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
    return result
