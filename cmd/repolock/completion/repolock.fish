# Completion of repolock for fish: repolock completion fish | source
function __repolock_complete
    set -l typed (commandline -opc)
    set -l last (commandline -ct)
    if set -l i (contains -i -- -- $typed)
        # The command that repolock is to run: what completes it is its own.
        set -e typed[1..$i]
        complete -C (string join ' ' -- (string escape -- $typed) "$last")
        return
    end
    set -l flag (string match -r -- '^--[^=]*=' "$last")
    set -l value (string replace -r -- '^--[^=]*=' '' "$last")
    set -l repolock $typed[1]
    set -e typed[1]
    for word in ($repolock complete -- $typed "$last" 2>/dev/null)
        switch $word
            case :file
                printf "$flag%s\n" (__fish_complete_path "$value")
            case :directory
                printf "$flag%s\n" (__fish_complete_directories "$value")
            case '*'
                echo "$flag$word"
        end
    end
end

complete -c repolock -f -a '(__repolock_complete)'
