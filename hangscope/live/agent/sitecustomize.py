"""Start the agent in every Python process of the job, then run the sitecustomize that this one hides.

`hangscope run` puts this folder, of its own installation, first on PYTHONPATH; it is taken off again here, before the program
imports anything. Nothing here may raise or be seen by the program.
"""


def _start() -> None:
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
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
