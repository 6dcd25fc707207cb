"""The command line: its commands, each in a module of `commands/`, and how an error ends one."""

from __future__ import annotations

import os
from typing import Any

import click

from hangscope._version import __version__
from hangscope.commands.analyze import analyze
from hangscope.commands.capture import capture
from hangscope.commands.exports import brief, mcp, pack, table, trace
from hangscope.commands.guides import demo, doctor, env, explain, hook
from hangscope.commands.history import diff, history
from hangscope.commands.run import run
from hangscope.commands.terminal import EXIT_ERROR, fail, fail_inside
from hangscope.errors import HangscopeError

_EXAMPLES = """\b
Examples:
  hangscope analyze ./dumps                        diagnose a job, write hangscope-report.html
  hangscope analyze logs/ dumps/ -o hang.html      several folders, another output file
  pbpaste | hangscope analyze -                    text copied from a terminal or a chat
  hangscope analyze dumps.tar.gz --format json     JSON on stdout, for a script
  hangscope explain uneven_loader                  explain a cause
  hangscope demo                                   hang a tiny job on the CPU and diagnose it
"""


class _Group(click.Group):
    """Turns errors into one message and an exit code; never a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command."""
        try:
            return super().main(*args, **kwargs)
        except HangscopeError as error:
            fail(error.message, error.hint, error.exit_code)
        except KeyboardInterrupt:
            fail("interrupted", "", EXIT_ERROR)
        except BrokenPipeError:
            os._exit(0)
        except MemoryError:
            fail("out of memory", "analyze fewer files, or use a machine with more memory", EXIT_ERROR)
        except Exception as error:  # a bug of ours
            fail_inside(error, EXIT_ERROR)
        return None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, "-V", "--version", prog_name="hangscope")
def main() -> None:
    """Find out which rank made a distributed PyTorch job hang, in which collective, on which line, and why."""


for command in (
    analyze, brief, table, trace, history, run, capture, doctor, env, hook, mcp, pack, diff, explain, demo,
):  # fmt: skip
    main.add_command(command)


if __name__ == "__main__":
    main()
