#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=08:00:00
#SBATCH --signal=B:TERM@120
# Slurm sends SIGTERM two minutes before the time limit; a stalled job is captured then. DIR must be on a shared disk.
DIR=$SLURM_SUBMIT_DIR/hangscope-$SLURM_JOB_ID
watch=()
hangscope --version > /dev/null 2>&1 && watch=(hangscope run --dir "$DIR" --hang-timeout 900 --)
exec "${watch[@]}" srun --kill-on-bad-exit=1 bash -c "${TRAIN:-python train.py}"
