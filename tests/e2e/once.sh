# Sourced by the set-ups: `say` and `done_once`, over $cache and $what (the set-up's name in its messages).

say() { echo "$what: $*" >&2; }

# done_once NAME VERSION COMMAND...: runs COMMAND unless NAME was finished at this VERSION before. An interrupted
# step leaves no stamp, so the next run starts that step afresh.
done_once() {
    local name=$1 version=$2 stamp="$cache/$1.version"
    shift 2
    if [[ -f $stamp && $(<"$stamp") == "$version" ]]; then return; fi
    say "$name $version ..."
    rm -rf "$stamp" "${cache:?}/$name"
    mkdir -p "$cache/$name"
    "$@" >"$cache/$name.log" 2>&1 || { say "$name failed; the end of $cache/$name.log:"; tail -n 20 "$cache/$name.log" >&2; exit 1; }
    echo "$version" >"$stamp"
}
