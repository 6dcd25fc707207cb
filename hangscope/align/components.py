"""Strongly connected components of a directed graph."""

from __future__ import annotations

from collections.abc import Sequence


def components(edges: Sequence[Sequence[tuple[int, bool]]]) -> list[list[int]]:
    """Return the strongly connected components, each after the components that it reaches (Tarjan, iterative, linear).

    `edges[i]` holds (target, anything) of node i.
    """
    count = len(edges)
    number, low, on_stack = [-1] * count, [0] * count, [False] * count
    stack: list[int] = []
    result: list[list[int]] = []
    counter = 0
    for start in range(count):
        if number[start] != -1:
            continue
        work: list[tuple[int, int]] = [(start, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                number[node] = low[node] = counter
                counter += 1
                stack.append(node)
                on_stack[node] = True
            elif on_stack[child := edges[node][position - 1][0]]:
                low[node] = min(low[node], low[child])
            for i in range(position, len(edges[node])):
                target = edges[node][i][0]
                if number[target] == -1:
                    work += [(node, i + 1), (target, 0)]
                    break
                if on_stack[target]:
                    low[node] = min(low[node], number[target])
            else:
                if low[node] == number[node]:
                    result.append(_pop_until(node, stack, on_stack))
    return result


def _pop_until(node: int, stack: list[int], on_stack: list[bool]) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
        on_stack[component[-1]] = False
    return sorted(component)
