# A step that takes long is done once for the same inputs. Sourced by setup.sh.

# Two at once would write the same files: the later one waits.
wait_for_other_setup() {
    mkdir -p "$tools"
    exec {setup_lock}>"$tools/lock"
    flock --nonblock "$setup_lock" && return
    say "another setup is running here: waiting for it to end"
    flock "$setup_lock"
}

# done_before STEP INPUTS [FILE...]: whether the step ran to its end with these
# inputs, and the files that it made are still there.
done_before() {
    local stamp=$tools/stamps/$1 inputs=$2 file
    shift 2
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$inputs" ] || return 1
    for file in "$@"; do
        [ -e "$file" ] || return 1
    done
}

# mark_done STEP INPUTS: to be called when all of the step has worked.
mark_done() {
    mkdir -p "$tools/stamps"
    printf '%s\n' "$2" >"$tools/stamps/$1"
}

# hash_of FILE...: one word that changes when any of the files does.
hash_of() {
    cat "$@" | sha256sum | cut -d ' ' -f 1
}

# A folder for what is needed only while a step runs; gone when setup ends.
scratch_folder() {
    if [ -z "${scratch:-}" ]; then
        mkdir -p "$tools"
        scratch=$(mktemp -d "$tools/scratch.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
    fi
}
