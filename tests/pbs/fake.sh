#!/bin/bash
# A batch system of one host for tests: qsub, qdel, qsig, qrerun and bsub, told apart by the name that this file is called by.
# $FAKE_BATCH is its folder: calls, and job-N with script, settings, what was said, exit codes. Jobs start at once.
#
# FAKE_QRERUN=no: jobs may not queue themselves again. FAKE_MINUTE: seconds that a minute of LSF has (60).
set -u
state=$FAKE_BATCH
name=$(basename "$0")
[[ $name == runner ]] || echo "$name $*" >>"$state/calls"

refuse() {
    echo "$name: $*" >&2
    exit 1
}

# The folder of a job by its number, such as 3.fake or 3[2].fake.
folder_of() {
    local folder="$state/job-${1%.fake}"
    [[ -d $folder ]] || refuse "Unknown Job Id $1"
    echo "$folder"
}

# A folder for the next job: its number is in $id.
enter() {
    exec 8>"$state/lock"
    flock 8
    id=$(($(cat "$state/last" 2>/dev/null || echo 0) + 1))
    echo "$id" >"$state/last"
    exec 8>&-
}

# Starts a job, or one of an array, in a session of its own: job, seconds before a warning (or -), seconds to the limit, file of the
# script. Its variables are exported before.
start() {
    local folder="$state/job-$1"
    mkdir "$folder"
    cp "$4" "$folder/script"
    printf '%s\n' "$2" "$3" >"$folder/limits"
    setsid "$state/bin/runner" "$folder" </dev/null >/dev/null 2>&1 &
}

# Runs a job until it is not to be run again.
runner() {
    local folder=$1 pid code warning limit watchers
    { read -r warning && read -r limit; } <"$folder/limits"
    while :; do
        rm -f "$folder/again"
        cd "$HOME" || exit 1
        setsid bash "$folder/script" >>"$folder/out" 2>&1 &
        pid=$!
        echo "$pid" >"$folder/pid"
        watchers=()
        if [[ $warning != - ]]; then
            setsid bash -c "sleep $warning && pkill -USR1 -s $pid" &
            watchers+=($!)
        fi
        setsid bash -c "sleep $limit && touch '$folder/over' && pkill -KILL -s $pid" &
        watchers+=($!)
        wait "$pid"
        code=$?
        # Each leads a session of its own, its sleep with it.
        for watcher in "${watchers[@]}"; do pkill -TERM -s "$watcher" 2>/dev/null; done
        echo "$code" >>"$folder/codes"
        [[ -e $folder/again || ($code -eq 75 && -e $folder/requeue) ]] || break
    done
    touch "$folder/done"
}

seconds() { echo "$1" | awk -F: '{ print $1 * 3600 + $2 * 60 + $3 }'; }

# What a script of PBS asks for: one line for each directive, each of which has to be known.
read_pbs() {
    local line nodes ranks
    nodes=1 ranks=1 limit=3600 array=''
    while read -r line; do
        case $line in
        '-l select='*)
            [[ $line =~ select=([0-9]+):ncpus=[0-9]+:mpiprocs=([0-9]+)(:ngpus=[0-9]+)?(:mem=[0-9a-zA-Z]+)?$ ]] ||
                refuse "illegal -l value: $line"
            nodes=${BASH_REMATCH[1]} ranks=${BASH_REMATCH[2]}
            ;;
        '-l walltime='*) limit=$(seconds "${line#*=}") ;;
        '-J '*) array=${line#-J } ;;
        '-N '* | '-q '* | '-A '* | '-r y' | '-j oe' | '-o '*) ;;
        *) refuse "illegal option: $line" ;;
        esac
    done < <(sed -n 's/^#PBS //p' "$1")
    slots=$((nodes * ranks))
}

qsub() {
    local script=${*: -1} index last step=1 range=''
    if [[ ${1:-} == -J ]]; then range=$2; fi
    if [[ ${1:-} == -W ]]; then
        [[ $2 == depend=afterany:* ]] || refuse "illegal -W value: $2"
        while [[ ! -e $(folder_of "${2##*:}")/done ]]; do sleep 0.1; done
    fi
    [[ -f $script ]] || refuse "script file: $script: No such file"
    read_pbs "$script"
    array=${range:-$array}
    if [[ -n $array ]]; then
        [[ $array =~ ^([0-9]+)-([0-9]+)(:([1-9][0-9]*))?$ ]] || refuse "illegal -J value"
        index=${BASH_REMATCH[1]} last=${BASH_REMATCH[2]} step=${BASH_REMATCH[4]:-1}
        ((index < last)) || refuse "illegal -J value"
    fi
    enter
    export PBS_ENVIRONMENT=PBS_BATCH PBS_O_WORKDIR=$PWD PBS_JOBID=$id.fake PBS_NODEFILE="$state/nodes-$id"
    local slot
    for ((slot = 0; slot < slots; slot++)); do uname -n; done >"$PBS_NODEFILE"
    if [[ -z $array ]]; then
        start "$id" - "$limit" "$script"
        echo "$id.fake"
        return
    fi
    for ((; index <= last; index += step)); do
        export PBS_ARRAY_INDEX=$index PBS_JOBID="${id}[$index].fake"
        start "${id}[$index]" - "$limit" "$script"
    done
    echo "${id}[].fake"
}

bsub() {
    local script="$state/stdin-$$" line warning=- limit=3600 slots=1 requeue=no
    local minute=${FAKE_MINUTE:-60}
    cat >"$script"
    while read -r line; do
        case $line in
        '-n '*) slots=${line#-n } ;;
        '-W '*) limit=$(($(seconds "${line#-W }:0") * minute / 60)) ;;
        '-wt '*) warning=$((limit - ${line#-wt } * minute)) ;;
        '-Q "75"') requeue=yes ;;
        '-J '* | '-R '* | '-wa USR1' | '-r' | '-o '* | '-q '* | '-P '* | '-gpu '*) ;;
        *) refuse "illegal option: $line" ;;
        esac
    done < <(sed -n 's/^#BSUB //p' "$script")
    enter
    export LSB_JOBID=$id LSB_JOBINDEX=0 LSB_MCPU_HOSTS
    LSB_MCPU_HOSTS="$(uname -n) $slots"
    HOME=$PWD start "$id" "$warning" "$limit" "$script"
    [[ $requeue == no ]] || touch "$state/job-$id/requeue"
    echo "Job <$id> is submitted to queue <normal>."
}

qdel() {
    local folder
    folder=$(folder_of "$1") || exit 1
    pkill -TERM -s "$(cat "$folder/pid")"
}

qsig() {
    local folder
    [[ $1 == -s ]] || refuse "usage: qsig -s SIGNAL JOB"
    folder=$(folder_of "$3") || exit 1
    pkill "-${2#SIG}" -s "$(cat "$folder/pid")"
}

# The job is killed with all that it has started, this program too where the job calls it.
qrerun() {
    local folder
    [[ ${FAKE_QRERUN:-yes} != no ]] || refuse "Unauthorized Request $1"
    folder=$(folder_of "$1") || exit 1
    touch "$folder/again"
    pkill -KILL -s "$(cat "$folder/pid")"
}

"$name" "$@"
