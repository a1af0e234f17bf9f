#!/bin/bash
# A job of Segue for OpenPBS and PBS Professional: qsub THIS_FILE. Written by `segue batch pbs`.
#
#PBS -N {{ name }}
#PBS -l select={{ nodes }}:ncpus={{ ranks_per_node * threads }}:mpiprocs={{ ranks_per_node }}{% if gpus_per_node %}:ngpus={{ gpus_per_node }}{% endif %}{% if memory %}:mem={{ memory }}{% endif %}

#PBS -l walltime={{ time }}
{% if queue %}
#PBS -q {{ queue }}
{% endif %}
{% if account %}
#PBS -A {{ account }}
{% endif %}
{% if array %}
# One job for each of these numbers.
#PBS -J {{ array }}
{% endif %}
# After a node failed the job is queued again and goes on.
#PBS -r y
#PBS -j oe
#PBS -o {{ log }}

cd "$PBS_O_WORKDIR" || exit 73
{% for line in setup %}
{{ line }}
{% endfor %}
echo "segue: job $PBS_JOBID on $(sort -u "$PBS_NODEFILE" | tr '\n' ' ')"
# PBS gives no warning before the time limit: the job watches the clock, and stops with a checkpoint in time.
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
# Most sites let operators alone queue a job again: then it is submitted anew.
{% if array %}
# Alone: an array has to be a range, and of the two numbers of this one the step leaves the job's own.
if [ "$code" -eq 75 ]; then qrerun "$PBS_JOBID" || qsub -J "$PBS_ARRAY_INDEX-$((PBS_ARRAY_INDEX + 1)):2" {{ script }}; fi
{% else %}
if [ "$code" -eq 75 ]; then qrerun "$PBS_JOBID" || qsub {{ script }}; fi
{% endif %}
{% endif %}
exit "$code"
