#!/bin/bash
# A job of Segue for LSF: bsub < THIS_FILE. Written by `segue batch lsf`.
#
#BSUB -J {{ name }}{% if array %}[{{ array | replace("%", "]%") }}{% if "%" not in array %}]{% endif %}{% endif %}

#BSUB -n {{ nodes * ranks_per_node }}
#BSUB -R "span[ptile={{ ranks_per_node }}] affinity[core({{ threads }})]"
{% if gpus_per_node %}
#BSUB -gpu "num={{ gpus_per_node }}/host"
{% endif %}
{% if memory %}
#BSUB -R "rusage[mem={{ memory }}]"
{% endif %}
#BSUB -W {{ hours_and_minutes }}
{% if queue %}
#BSUB -q {{ queue }}
{% endif %}
{% if account %}
#BSUB -P {{ account }}
{% endif %}
# So many minutes before the time limit the job gets SIGUSR1, and the ranks write a checkpoint.
#BSUB -wa USR1
#BSUB -wt {{ (warning + 59) // 60 }}
# After a node failed the job is queued again and goes on.
#BSUB -r
{% if requeue %}
# After a checkpoint at the time limit too.
#BSUB -Q "75"
{% endif %}
#BSUB -o {{ log }}

{% for line in setup %}
{{ line }}
{% endfor %}
echo "segue: job $LSB_JOBID on $LSB_MCPU_HOSTS"
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
exit "$code"
