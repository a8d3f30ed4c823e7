#compdef repolock
# Completion of repolock for zsh: source <(repolock completion zsh), after compinit, or
# as _repolock in a directory of $fpath.
_repolock() {
	local i word
	for ((i = 2; i < CURRENT; i++)); do
		if [[ $words[i] == -- ]]; then
			# The command that repolock is to run: what completes it is its own.
			shift $i words
			((CURRENT -= i))
			_normal
			return
		fi
	done
	local repolock=${(Q)words[1]} files=
	local -a typed=("${(@Q)words[2,CURRENT]}") found shown begun
	local longest=0
	for word in ${(f)"$(${~repolock} complete -- "${(@)typed}" 2>/dev/null)"}; do
		case $word in
		:file) files=-f ;;
		:directory) files=-/ ;;
		*:|*/) begun+=($word) ;; # of a URL
		*)
			found+=("${word%%$'\t'*}")
			((${#found[-1]} > longest)) && longest=${#found[-1]}
			shown+=("$word")
			;;
		esac
	done
	for ((i = 1; i <= $#found; i++)); do
		if [[ $shown[i] == *$'\t'* ]]; then
			shown[i]="${(r:longest:)found[i]}  -- ${shown[i]#*$'\t'}"
		fi
	done
	compset -P '--[^=]#='
	if [[ "$shown" == *'  -- '* ]]; then
		compadd -l -d shown -a found # a line each
	elif (($#found)); then
		compadd -a found
	fi
	(($#begun)) && compadd -S '' -a begun
	case $files in
	-f) _files ;;
	-/) _files -/ ;;
	esac
	return 0
}

if [[ $funcstack[1] == _repolock ]]; then
	_repolock "$@"
else
	compdef _repolock repolock
fi
