# shellcheck shell=bash disable=SC2154
# Runs pip for scripts/setup.sh, which sources this file and provides root, venv, say, die and find_python.sh.

free_mb() { # free_mb FOLDER: empty where df does not tell
    df -Pk "$1" 2>/dev/null |
        awk 'NR == 2 { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+%$/) print int($(i - 1) / 1024) }' || true
}

# A package whose copying was cut short has its metadata but no list of files yet; pip would take it for installed.
forget_half_installed() {
    local metadata
    for metadata in "$venv"/lib/python*/site-packages/*.dist-info; do
        [[ ! -d "$metadata" || -f "$metadata/RECORD" ]] || rm -rf "$metadata"
    done
}

progress() {
    say "    ${1:0:100}"
    shown=$SECONDS
}

# Copies pip's lines to the log, shows the telling ones, and after 15 s of silence says what pip is at.
show_progress() {
    local line="" part status last="starting" begin=$SECONDS shown=$SECONDS patience=()
    # bash 3 cannot tell a time-out of `read` from the end of the input.
    ((BASH_VERSINFO[0] < 4)) || patience=(-t 15)
    while true; do
        status=0
        IFS= read -r ${patience[@]+"${patience[@]}"} part || status=$?
        line+=$part
        if ((status > 128)); then
            progress "$((SECONDS - begin)) s: $last"
            continue
        fi
        if [[ -n "$line" ]]; then
            printf '%s\n' "$line" >>"$venv/setup.log"
            case $line in
                *Downloading*MB\)* | *Downloading*GB\)* | *'Building wheel'*) progress "${line#"${line%%[! ]*}"}" ;;
                'Installing collected'*) progress "installing $(wc -w <<<"${line#*:}" | tr -d ' ') packages" ;;
            esac
            last=$line
            ((SECONDS - shown < 15)) || progress "$((SECONDS - begin)) s: $last"
        fi
        ((status == 0)) || return 0
        line=""
    done
}

pip_install() { # pip_install TITLE ARGUMENT...
    local status=0
    say "$1"
    shift
    echo "# pip install $*" >>"$venv/setup.log"
    # No isolation: the build tools are in the environment, pip need not fetch a second set of them.
    # A user-wide `user = true` in pip's configuration is an error inside an environment.
    (cd "$root" && PIP_USER=0 PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --no-input --progress-bar off \
        --no-build-isolation --use-pep517 -c constraints.txt "$@") </dev/null 2>&1 | show_progress || status=$?
    ((status == 0)) || explain_failure "$status"
}

explain_failure() {
    local log="$venv/setup.log" network free reason
    network='NewConnectionError|[Nn]ame resolution|Name or service not known|nodename nor servname'
    network+='|Network is unreachable|No route to host|Connection refused|ConnectTimeout|ReadTimeout|Max retries exceeded|ProxyError|SSLError'
    free=$(free_mb "$venv")
    if grep -q 'No space left on device' "$log" || ((${free:-999} < 20)); then
        reason="the disk is full: free some space (a CUDA build of torch needs about 8 GB; TMPDIR=... moves pip's"
        reason+=" temporary files)"
    elif grep -Eq "$network" "$log"; then
        reason="the package index cannot be reached: check the network, https_proxy and 'pip config list'"
    elif grep -Eq 'No matching distribution found|ResolutionImpossible' "$log"; then
        reason="the package index has nothing that fits Python $(version_of "$venv/bin/python") on this machine:"
        reason+=" remove $venv and name another Python with PYTHON=..."
    else
        reason="pip stopped with exit code $1"
    fi
    echo "---- the last lines of $log" >&2
    tail -n 15 "$log" | sed 's/^/    /' >&2
    die "$reason. The whole log: $log. Running this again goes on where it stopped."
}
