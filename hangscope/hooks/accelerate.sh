#!/bin/bash
# accelerate.sh [OPTIONS OF ACCELERATE LAUNCH] train.py ...
watch=()
hangscope --version > /dev/null 2>&1 && watch=(hangscope run --dir "${DIR:-hangscope-$$}" --hang-timeout "${HANG_TIMEOUT:-900}" --)
exec "${watch[@]}" accelerate launch "$@"
