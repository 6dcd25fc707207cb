"""Start the agent in every Python process of the job, then hand over to the sitecustomize that this one stands before.

`hangscope run` puts a copy of this folder first on PYTHONPATH. Nothing here may raise or be seen by the program.
"""


def _start() -> None:
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    os.environ.setdefault(
        "HANGSCOPE_DIR", os.path.dirname(here)
    )  # some launchers take only PYTHON* to other nodes
    try:
        import hangscope_agent  # type: ignore[import-not-found,unused-ignore]

        hangscope_agent.start()
    except Exception:
        pass  # the job goes on as if nothing had been there
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
