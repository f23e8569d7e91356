# A long step runs only once for the same inputs. Sourced by setup.sh.

# Several setups may run at the same time. Each step has a lock, so that two of them never
# write the same files; a step that is done needs none.
declare -A step_locks=()

# lock_step STEP: waits until no other setup runs this step.
lock_step() {
    local lock
    mkdir -p "$tools/stamps"
    exec {lock}>"$tools/stamps/$1.lock"
    if ! flock --nonblock "$lock"; then
        say "another setup is at the step $1: waiting for it"
        flock "$lock"
    fi
    step_locks[$1]=$lock
}

unlock_step() {
    local lock=${step_locks[$1]}
    exec {lock}>&-
    unset "step_locks[$1]"
}

# done_before STEP INPUTS [FILE...]: whether the step was completed with these inputs, and
# the files that it wrote still exist. If not, the step is locked until `mark_done`.
done_before() {
    has_stamp "$@" && return
    lock_step "$1"
    # Another setup may have completed it meanwhile.
    has_stamp "$@" || return 1
    unlock_step "$1"
}

has_stamp() {
    local stamp=$tools/stamps/$1 inputs=$2 file
    shift 2
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$inputs" ] || return 1
    for file in "$@"; do
        [ -e "$file" ] || return 1
    done
}

# mark_done STEP INPUTS: to be called when the whole step has succeeded.
mark_done() {
    printf '%s\n' "$2" >"$tools/stamps/$1"
    unlock_step "$1"
}

# hash_of FILE...: a hash of all files together.
hash_of() {
    cat "$@" | sha256sum | cut -d ' ' -f 1
}

# A folder for temporary files, which is deleted when setup ends.
scratch_folder() {
    if [ -z "${scratch:-}" ]; then
        mkdir -p "$tools"
        scratch=$(mktemp -d "$tools/scratch.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
    fi
}
