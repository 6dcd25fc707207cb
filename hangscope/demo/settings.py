"""The environment variables through which the runner talks to the ranks of a demo job."""

DUMPS = "HANGSCOPE_DEMO_DUMPS"  # folder for what the job leaves
QUIET = "HANGSCOPE_DEMO_QUIET"  # seconds without progress after which a rank dumps
LIMIT = "HANGSCOPE_DEMO_LIMIT"  # seconds after which a rank ends itself, whatever happens
GLOO_TIMEOUT = "HANGSCOPE_DEMO_GLOO_TIMEOUT"  # seconds until gloo gives up a call
DUMP_AT_END = "HANGSCOPE_DEMO_DUMP_AT_END"  # set: a rank that finishes dumps too
