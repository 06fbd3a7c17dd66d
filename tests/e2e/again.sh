# Sourced by the runs of the proofs: which of them failed.

# failed_last CACHE: the proofs that failed in the run before, as pytest keeps them in its cache folder, one a line.
failed_last() {
    python3 -c 'import json, sys; print("", *json.load(open(sys.argv[1])), sep="\n    ")' "$1/v/cache/lastfailed"
}
