# Sourced by the set-ups: packages of a suite of Debian, unpacked under $cache; nothing of the system changes.

# The machine's own package source, with another suite.
source_of() {
    local suite=$1 folder=$2 list
    for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [[ -s $list ]] || continue
        if [[ $list == *.sources ]]; then
            sed -e '/^$/,$d' -e "s/^Suites:.*/Suites: $suite/" "$list" >"$folder/suite.sources"
            echo "$folder/suite.sources"
        else
            sed -n "/^deb /{s/^\(deb \(\[[^]]*\] \)\?[^ ]* \)[^ ]* /\1$suite /p;q}" "$list" >"$folder/suite.list"
            echo "$folder/suite.list"
        fi
        return
    done
    echo "no Debian package source on this machine" >&2
    return 1
}

# unpack NAME SUITE PACKAGE...: the packages with all they depend on, into $cache/NAME; after --alone they alone.
unpack() {
    local alone=
    if [[ $1 == --alone ]]; then
        alone=1
        shift
    fi
    local root="$cache/$1" suite=$2 apt list package
    shift 2
    apt="$root/apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/state"
    touch "$apt/state/status"
    list=$(source_of "$suite" "$apt")
    local options=(-o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=- -o Dir::State="$apt/state" -o Dir::State::lists="$apt/lists"
        -o Dir::Cache="$apt/cache" -o Dir::State::status="$apt/state/status" -o APT::Sandbox::User="$(id -un)")
    apt-get "${options[@]}" update -qq
    if [[ $alone ]]; then
        (cd "$apt/cache/archives" && apt-get "${options[@]}" download -qq "$@")
    else
        apt-get "${options[@]}" install -y -qq --no-install-recommends --download-only "$@"
    fi
    for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    rm -rf "$apt"
}
