#!/bin/bash
# torchrun.sh [OPTIONS OF TORCHRUN] train.py ...; on several nodes, give all the same DIR on a shared disk.
watch=()
hangscope --version > /dev/null 2>&1 && watch=(hangscope run --dir "${DIR:-hangscope-$$}" --hang-timeout "${HANG_TIMEOUT:-900}" --)
exec "${watch[@]}" torchrun "$@"
