# Completion of repolock for bash: source <(repolock completion bash)
_repolock() {
	local i word about cur=${COMP_WORDS[COMP_CWORD]} abouts=() longest=0
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			_repolock_command $((i + 1))
			return
		fi
	done
	[[ $cur == = ]] && cur=
	while IFS=$'\t' read -r word about; do
		case $word in
		:file) _repolock_files -f ;;
		:directory) _repolock_files -d ;;
		*:|*/) # the beginning of a URL
			COMPREPLY+=("$word")
			compopt -o nospace 2>/dev/null
			;;
		*)
			COMPREPLY+=("$word")
			abouts[${#COMPREPLY[@]} - 1]=$about
			((${#word} > longest)) && longest=${#word}
			;;
		esac
	done < <("${1/#\~/$HOME}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	# A list shows what each word is for. (33, 63 and 64 are lists: COMP_TYPE in bash(1).)
	[[ ${#COMPREPLY[@]} -gt 1 && $COMP_TYPE =~ ^(33|63|64)$ ]] || return 0
	local room=$((${COLUMNS:-80} - longest - 5))
	for i in "${!abouts[@]}"; do
		about=${abouts[i]}
		((${#about} > room && room > 9)) && about=${about:0:room-3}...
		[[ -z $about ]] || printf -v "COMPREPLY[i]" '%-*s  (%s)' "$longest" "${COMPREPLY[i]}" "$about"
	done
}

_repolock_files() {
	compopt -o filenames 2>/dev/null
	while IFS= read -r word; do
		COMPREPLY+=("$word")
	done < <(compgen "$1" -- "$cur")
}

# The command that repolock is to run begins at a word: what completes it is its own.
_repolock_command() {
	if declare -F _comp_command_offset >/dev/null; then
		_comp_command_offset "$1"
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif [[ $1 -eq $COMP_CWORD && $cur != */* ]]; then
		while IFS= read -r word; do
			COMPREPLY+=("$word")
		done < <(compgen -c -- "$cur")
	else
		_repolock_files -f
	fi
}

complete -F _repolock repolock
