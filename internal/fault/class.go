package fault

// Class is a kind of failure. It is an error, so that errors.Is can find it.
type Class struct {
	says string
	of   *Class // the more general class, or nil

	// Name is the name of the class in JSON output, and Exit its exit code. If a class has neither, it only marks an
	// error, and another class decides both.
	Name string
	Exit int
	// Permanent is set if the same request would fail again.
	Permanent bool
	// Nothing is set if the failure comes before repolock has changed anything. The error message then includes that.
	Nothing bool
	// Advice names the next step of the user. It contains commands in the form that fault.Expand explains.
	Advice string
}

// Error returns the class as text. It is the error's text if the error has no other.
func (c *Class) Error() string { return c.says }

// Unwrap returns the more general class, or nil.
func (c *Class) Unwrap() error {
	if c.of == nil {
		return nil
	}
	return c.of
}

// Exit codes are from sysexits(3) if one fits, or the shell's.
const (
	ExitAborted     = 1   // the user answered no, the lock to break doesn't exist, or a lock is older than status --older-than
	ExitUsage       = 64  // EX_USAGE
	ExitNotThere    = 66  // EX_NOINPUT: the repository doesn't exist
	ExitUnavailable = 69  // EX_UNAVAILABLE
	ExitUnjudged    = 70  // EX_SOFTWARE: torture reached no verdict
	ExitFailed      = 74  // EX_IOERR
	ExitHeld        = 75  // EX_TEMPFAIL; --held-exit-code changes it
	ExitPermission  = 77  // EX_NOPERM
	ExitUnfit       = 78  // EX_CONFIG
	ExitLost        = 79  // the first free code after those of sysexits, which has none for this
	ExitNotExec     = 126 // as in the shell
	ExitNotFound    = 127 // as in the shell
	ExitSignal      = 128 // + n, as in the shell
)

// These constants replace advice that depends on the command line. cmd/internal/show has their texts.
const (
	SeeHelp    = "see the help"
	SeeDoctor  = "see doctor"
	SeeDetails = "see the details"
	SeeNothing = "see nothing" // there is no advice, whatever the class is
)

// The classes of the command.
var (
	Interrupted   = &Class{says: "interrupted", Name: "interrupted", Nothing: true} // Error.Exit is 128 + the signal
	WrongFile     = &Class{says: "wrong configuration file", of: Early, Name: "wrong_configuration", Exit: ExitUnfit, Nothing: true, Advice: "correct the file, or name another with --config"}
	UnknownOrder  = &Class{says: "this version of repolock doesn't do that", of: Usage, Name: "usage", Exit: ExitUsage, Nothing: true, Advice: SeeHelp}
	Usage         = &Class{says: "wrong usage", of: Early, Name: "usage", Exit: ExitUsage, Nothing: true, Advice: SeeHelp}
	NoSuchLock    = &Class{says: "no such lock", Name: "no_such_lock", Exit: ExitAborted, Advice: "{repolock status} lists the ids"}
	Declined      = &Class{says: "nothing was deleted", Name: "declined", Exit: ExitAborted}
	TortureFailed = &Class{says: "torture failed", Name: "torture_failed", Exit: ExitUnavailable, Advice: "try a longer --duration, and see with -v why no process got the lock"}
	Unjudged      = &Class{says: "whether there was a violation isn't known", Name: "torture_unjudged", Exit: ExitUnjudged, Advice: "try a longer --duration, on a machine with less to do"}
	TooFew        = &Class{says: Unjudged.says, of: Unjudged, Name: Unjudged.Name, Exit: ExitUnjudged, Advice: "try a longer --duration, or more --clients"}
	Succeeded     = &Class{says: "the job has succeeded within its period", Name: "already_succeeded"}
	NotExecutable = &Class{says: "command can't be executed", Name: "command_not_executable", Exit: ExitNotExec, Advice: "it must be a file that this user may execute: chmod +x"}
	NoProgram     = &Class{says: "command not found", Name: "command_not_found", Exit: ExitNotFound, Advice: "check the path, which begins in the working directory"}
	NoExecutable  = &Class{says: "repolock can't start its own program once more", Name: "wrong_configuration", Exit: ExitUnfit, Nothing: true, Advice: "if /proc isn't mounted, as in a new chroot, mount it: mount -t proc proc /proc"}
	NoRoom        = &Class{says: "repolock can't start its threads and its guard", Name: "wrong_configuration", Exit: ExitUnfit, Nothing: true, Advice: "raise the limit (systemd: LimitNPROC, TasksMax and LimitAS; Docker: --pids-limit), or set it for the command alone: sh -c 'ulimit …; exec COMMAND'"}
	Early         = &Class{says: "nothing was begun"} // a command that deletes has deleted nothing, either
	NotAcquired   = &Class{says: "the lock wasn't acquired, and the command wasn't started"}
	Unanswered    = &Class{says: "the store has answered no request", of: NotAcquired}
	OwnerEnded    = &Class{says: "the process that it was for has ended", Name: "keeper_failed", Exit: ExitUnavailable, Advice: "call acquire with --for-pid and a process that runs on, such as $$"}
	KeeperGone    = &Class{says: "the lock has no keeper any more: it was released, or the process that it was for has ended, or its keeper was killed, or it was acquired by another user, or with another XDG_RUNTIME_DIR or TMPDIR", Name: "keeper_gone", Exit: ExitLost, Advice: "repolock -r REPOSITORY status shows whether it is held; if the script still runs, call acquire with --for-pid $$; check whether the operation was completed"}
	KeeperSilent  = &Class{says: "the keeper doesn't answer", Name: "keeper_silent", Exit: ExitUnavailable, Advice: "the lock might still be held, but count it as lost"}
	KeeperFailed  = &Class{says: "the keeper of the lock ended unexpectedly; its objects in the repository expire", Name: "keeper_failed", Exit: ExitUnavailable, Advice: "acquire --log FILE keeps the messages of the keeper"}
	NoSocket      = &Class{says: "the directory for keepers' sockets", Name: "wrong_configuration", Exit: ExitUnfit, Nothing: true, Advice: "set XDG_RUNTIME_DIR or TMPDIR to a directory of your own"}
)

// The classes of a lock.
var (
	Held         = &Class{says: "held by another holder", Name: "lock_blocked", Exit: ExitHeld} // Name can be lock_stale, too; --held-exit-code changes Exit
	Lost         = &Class{says: "lock lost", Name: "lock_lost", Exit: ExitLost, Advice: "check whether the operation was completed"}
	Released     = &Class{says: "lock released", Name: KeeperGone.Name, Exit: ExitLost, Advice: KeeperGone.Advice}
	Expired      = &Class{says: "the lease was over before the command could run", Name: Lost.Name, Exit: ExitLost, Advice: Lost.Advice}
	ClockStepped = &Class{says: "the wall clock was stepped, or the machine was paused", Name: Lost.Name, Exit: ExitLost, Advice: Lost.Advice}
	LockLive     = &Class{says: "only a stale tower-fleet lock can be broken", Name: "lock_live", Exit: ExitHeld, Advice: "wait until its holder is done; if that crashed, the lock is stale when its ttl is over"}
	Unsure       = &Class{says: "not sure whether the lock is held"}
	Slow         = &Class{says: "store too slow for the ttl", Name: "store_unfit", Exit: ExitUnfit, Nothing: true, Advice: "choose a longer --ttl; {repolock doctor} measures the store"}
	NoFence      = &Class{says: "no fencing token", Name: "store_unfit", Exit: ExitUnfit, Nothing: true, Advice: "leave out --fence, or use a store that is known to honour conditional puts: {repolock doctor} examines the store"}
)

// The classes of failures of the systems whose locks --also acquires. Their own messages contain the advice.
var (
	HandleLost        = &Class{says: "lock lost"} // a backend returns it; a holder's error has the class Lost
	LockKey           = &Class{says: "not a key for this backend", of: Early, Name: "usage", Exit: ExitUsage, Nothing: true, Advice: SeeHelp}
	ServerUnreachable = &Class{says: "server can't be reached", of: Unreachable, Name: "store_unavailable", Exit: ExitUnavailable, Nothing: true, Advice: "check the address in the URL, and that the server runs"}
	ServerPermission  = &Class{says: "permission denied", Name: "permission_denied", Exit: ExitPermission, Nothing: true, Advice: "check the user and the password, or the modes of the files"}
	ServerUnfit       = &Class{says: "unfit to keep a lock", Name: "store_unfit", Exit: ExitUnfit, Nothing: true, Advice: "correct the URL, or keep the lock elsewhere; see repolock help urls"}
)

// The classes of a store. Package store documents their meaning for the stored objects.
var (
	URL                  = &Class{says: "invalid repository URL", of: Early, Name: "usage", Exit: ExitUsage, Permanent: true, Nothing: true, Advice: "see repolock help urls"}
	Precondition         = &Class{says: "precondition failed", Permanent: true}
	ConditionUnsupported = &Class{says: "conditional put not supported", Name: "store_unfit", Exit: ExitUnfit, Permanent: true, Nothing: true, Advice: "{repolock doctor} examines the store"}
	ConditionUnsent      = &Class{says: ConditionUnsupported.says, of: ConditionUnsupported}
	BatchUnsupported     = &Class{says: "deletion of many objects in one request not supported", Permanent: true}
	BatchUnsent          = &Class{says: BatchUnsupported.says, of: BatchUnsupported}
	Conflict             = &Class{says: "another write of the object is under way"}
	Credentials          = &Class{says: Permission.says, of: Permission, Name: "permission_denied", Exit: ExitPermission, Nothing: true, Advice: "check the credentials: are they complete, still valid, and for this server?"}
	CredentialsLater     = &Class{says: "the credentials can't be retrieved now"} // the service that issues them might answer later
	ReadOnly             = &Class{says: Permission.says, of: Permission, Name: "permission_denied", Exit: ExitPermission, Nothing: true, Advice: "mount it writable; the kernel itself makes a file system read-only after a disk error"}
	Permission           = &Class{says: "permission denied", Name: "permission_denied", Exit: ExitPermission, Permanent: true, Nothing: true, Advice: "locking needs to list, read and write below index/ in the repository, and should be able to delete"}
	Config               = &Class{says: "wrong configuration", Name: "wrong_configuration", Exit: ExitUnfit, Permanent: true, Nothing: true, Advice: "check the URL and the settings of the store; see repolock help urls"}
	Listing              = &Class{says: "a listing can't be relied on", Name: "store_unfit", Exit: ExitUnfit, Nothing: true, Advice: "a lock could be held there unseen; run {repolock doctor}, which lists again, and look for a cache or gateway in between"}
	Irregular            = &Class{says: "something else is in the place of an object", Name: "store_unfit", Exit: ExitUnfit, Permanent: true, Nothing: true, Advice: "repolock needs a folder or a plain file there; if no operation is running, remove what has its name"}
	NotFound             = &Class{says: "not found", Name: "repository_not_found", Exit: ExitNotThere, Permanent: true, Nothing: true, Advice: "the repository must exist (a bucket, or a directory whose disk is mounted); repolock doesn't create it"}
	NoHost               = &Class{says: "no such host", Name: "store_unavailable", Exit: ExitUnavailable, Nothing: true, Advice: "check the name of the endpoint, and that this machine's DNS resolves it"}
	Unreachable          = &Class{says: "store can't be reached", Name: "store_unavailable", Exit: ExitUnavailable, Nothing: true, Advice: SeeDoctor}
	Late                 = &Class{says: "no answer in time", Name: "store_unavailable", Exit: ExitUnavailable, Nothing: true, Advice: "the store or the network is too slow now: try again; {repolock doctor} measures the store"}
	Full                 = &Class{says: "no space left", Name: "store_full", Exit: ExitFailed, Nothing: true, Advice: "a lock needs 700 bytes: free space outside of the repository, or raise the quota; a prune can't free it before it has its lock"}
	TooLarge             = &Class{says: "object too large", Permanent: true}
	InvalidKey           = &Class{says: "invalid key", Permanent: true}
)

// Unknown is the class of an error that has no other class. It isn't Unreachable. Otherwise --if-unreachable could run
// a command without its lock.
var Unknown = &Class{says: "failed", Name: "failed", Exit: ExitFailed, Nothing: true, Advice: SeeDetails}

// classes lists the classes that Of and Permanent look for. The first one that matches an error counts.
var classes = []*Class{
	Interrupted, WrongFile, Usage, NoSuchLock, Held, TortureFailed, Declined, TooFew, Unjudged, LockLive, LockKey, Lost, Expired, ClockStepped,
	ServerUnreachable, ServerPermission, ServerUnfit, Released, KeeperGone, KeeperSilent, NoExecutable, NoRoom, KeeperFailed, OwnerEnded,
	NoProgram, NotExecutable, Succeeded, URL, Slow, Credentials, ReadOnly, Permission, Config, NoSocket,
	NoFence, ConditionUnsupported, Listing, Irregular, NotFound, NoHost, Unreachable, Full,
	Precondition, BatchUnsupported, TooLarge, InvalidKey, Late,
}
