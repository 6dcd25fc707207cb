from hangscope.ingest.groups import roles
from hangscope.model.incident import Group


def role_of(*groups: tuple[str, str, tuple[int, ...]], world: int = 8) -> list[str | None]:
    return [
        g.role
        for g in roles([Group(i, name, desc, ranks) for i, (name, desc, ranks) in enumerate(groups)], world)
    ]


def test_a_name_tells_the_role() -> None:
    found = role_of(
        ("0", "default_pg", tuple(range(8))),
        ("35", "TENSOR_MODEL_PARALLEL_GROUP", (0, 1)),
        ("39", "PIPELINE_MODEL_PARALLEL_GROUP", (0, 4)),
        ("71", "EXPERT_MODEL_PARALLEL_GROUP", (0, 1, 2, 3)),
        ("3", "mesh_dp", (0, 4)),
    )
    assert found == ["world", "tp", "pp", "ep", "dp"]


def test_bare_numbers_are_told_by_the_members_strides() -> None:
    assert role_of(("1", "", (0, 1)), ("2", "", (2, 3)), ("3", "", (0, 2)), ("4", "", (0, 4))) == [
        "tp",
        "tp",
        "dp",
        "pp",
    ]


def test_one_dimension_alone_or_no_regular_layout_tells_nothing() -> None:
    assert role_of(("1", "", (0, 1, 2, 3))) == [None]
    assert role_of(("1", "", (0, 1, 5)), ("2", "", (0, 2))) == [None, None]


def test_a_name_of_several_dimensions_tells_what_its_ranks_share() -> None:
    found = role_of(
        ("1", "expert_data_parallel", (0, 1)),
        ("2", "mesh_dp_shard_cp", (2, 3)),
        ("3", "expert_parallel", (4, 5)),
    )
    assert found == ["dp", "fsdp", "ep"]
