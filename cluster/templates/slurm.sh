#!/bin/bash
# A job of Segue for Slurm: sbatch THIS_FILE. Written by `segue batch slurm`.
#
#SBATCH --job-name={{ name }}
#SBATCH --nodes={{ nodes }}
#SBATCH --ntasks-per-node={{ ranks_per_node }}
#SBATCH --cpus-per-task={{ threads }}
{% if gpus_per_node %}
#SBATCH --gpus-per-node={{ gpus_per_node }}
{% endif %}
{% if memory %}
#SBATCH --mem={{ memory }}
{% endif %}
#SBATCH --time={{ time }}
{% if queue %}
#SBATCH --partition={{ queue }}
{% endif %}
{% if account %}
#SBATCH --account={{ account }}
{% endif %}
{% if array %}
# One job for each of these numbers.
#SBATCH --array={{ array }}
{% endif %}
# This many seconds before the time limit this shell gets SIGUSR1, and the ranks write a checkpoint.
#SBATCH --signal=B:USR1@{{ warning }}
# After a node failed, and after a checkpoint at the time limit, the job is queued again and goes on.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={{ log }}

{% for line in setup %}
{{ line }}
{% endfor %}
echo "segue: job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, start $((${SLURM_RESTART_COUNT:-0} + 1))"
{{ command }} &
job=$!
cancelled=
trap 'kill -USR1 $job' USR1
trap 'cancelled=1; kill -USR1 $job' TERM
# A signal ends `wait` early; the job itself has not ended then.
while kill -0 $job 2>/dev/null; do wait $job; done
wait $job
code=$?
# Who is cancelled is not to come back.
if [ -n "$cancelled" ]; then exit 143; fi
{% if requeue %}
{% if array %}
# The last job of an array has the array's own number, by which all of them would be queued again.
if [ "$code" -eq 75 ]; then scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi
{% else %}
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
{% endif %}
{% endif %}
exit "$code"
