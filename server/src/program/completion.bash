# Completion of loadmaster for bash, with the planner's names.
_loadmaster() {
    # Readline cuts words at = : and @; the program wants them whole, up to the cursor.
    local line=${COMP_LINE:0:COMP_POINT} word words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -eq 0 || $line == [[:blank:]]* ]]; then
            words+=("")
            line=${line#"${line%%[![:blank:]]*}"}
        fi
        if [[ $line != "$word"* ]]; then word=$line; fi
        words[${#words[@]} - 1]+=$word
        line=${line#"$word"}
    done
    # Only what is behind the last cut is replaced.
    local begun=${words[${#words[@]} - 1]} offered
    begun=${begun%"$2"}
    COMPREPLY=()
    while IFS= read -r offered; do
        COMPREPLY+=("${offered#"$begun"}")
    done < <(LOADMASTER_COMPLETE=bash "$1" -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then compopt -o nospace; fi
}
complete -o bashdefault -o nosort -F _loadmaster loadmaster 2>/dev/null || complete -o bashdefault -F _loadmaster loadmaster
