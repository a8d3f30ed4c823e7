package programs

import "github.com/repolock/repolock/replock"

const (
	shared    = replock.Shared
	exclusive = replock.Exclusive
)

// All are the programs of the table. Each program's page has the same table, for people (TestPages).
var All = []*Program{restic, rustic, borg, kopia, rclone, cloudstic}

const twoRepositories = "it reads one repository and writes into another, so it needs two locks"

// dryRun is the rule of a command that changes nothing, and reads no data, with --dry-run.
var dryRun = []Rule{{Flag: "dry-run"}}

var restic = &Program{
	Name: "restic", Page: "restic.md", locate: (*Line).resticPlace, named: []string{"RESTIC_REPOSITORY", "RESTIC_REPOSITORY_FILE"},
	flags: `cacert= cache-dir= cleanup-cache compression= extra-verify help,h http-user-agent= insecure-no-password
insecure-tls json key-hint= limit-download= limit-upload= no-cache no-extra-verify no-lock option,o= pack-size=
password-command= password-file,p= quiet,q repo,r= repository-file= retry-lock= stuck-request-timeout=
tls-client-cert= verbose,v
add= allow-other archive,a= bash-completion= blob cleanup compact,c copy-chunker-params delete dry-run,n exclude,e=
exclude-caches exclude-cloud-files exclude-file= exclude-if-present= exclude-larger-than= exclude-xattr=
files-from= files-from-raw= files-from-verbatim= fish-completion= force,f forget from-insecure-no-password
from-key-hint= from-password-command= from-password-file= from-repo= from-repository-file= group-by,g=
host,H= human-readable iexclude= iexclude-file= ignore-case ignore-ctime ignore-inode iinclude= iinclude-file=
include= include-file= include-xattr= keep-daily,d= keep-hourly= keep-last= keep-monthly,m= keep-tag=
keep-weekly,w= keep-within= keep-within-daily= keep-within-hourly= keep-within-monthly= keep-within-weekly=
keep-within-yearly= keep-yearly,y= last latest= long man= max-age= max-repack-size= max-unused= metadata mode=
ncdu new-host= new-insecure-no-password new-password-file= new-time= newest,N= no-default-permissions no-scan no-size
oldest,O= one-file-system,x output= overwrite= owner-root ownership-by-name pack parent= path= path-template=
powershell-completion= prune read-all-packs read-concurrency= read-data read-data-subset= recursive remove=
remove-all repack-cacheable-only repack-small repack-smaller-than= repack-uncompressed repo2= repository-version=
reverse,R set= show-pack-id skip-if-unchanged snapshot-template= sparse stdin stdin-filename= stdin-from-command
snapshot,s= sort= strict-inode tag= target,t= time= time-template= tree unsafe-allow-remove-all
unsafe-recover-no-free-space= use-fs-snapshot user= verify with-atime with-cache zsh-completion=`,
	Commands: []Command{
		{Words: "backup", Mode: shared, Rules: dryRun},
		{Words: "recover", Mode: shared},
		{Words: "key add", Mode: shared},
		{Words: "restore", Mode: shared, flags: ",i="},
		{Words: "dump", Mode: shared},
		{Words: "mount", Mode: shared},
		{Words: "copy", Mode: shared, Refused: twoRepositories},
		{Words: "prune", Mode: exclusive, Rules: dryRun},
		{Words: "forget", Mode: exclusive, Rules: dryRun, flags: ",l= ,H="},
		{Words: "check", Mode: exclusive},
		{Words: "unlock", Mode: exclusive},
		{Words: "tag", Mode: exclusive},
		{Words: "migrate", Mode: exclusive},
		{Words: "rebuild-index", Mode: exclusive},
		{Words: "repair", Mode: exclusive, Rules: dryRun},
		{Words: "rewrite", Mode: exclusive, Rules: dryRun, flags: "snapshot-summary,s"},
		{Words: "key remove", Mode: exclusive},
		{Words: "key passwd", Mode: exclusive},
		{Words: "snapshots"},
		{Words: "ls", flags: ",l"},
		{Words: "find", flags: ",i ,l"},
		{Words: "diff"},
		{Words: "stats"},
		{Words: "list"},
		{Words: "cat"},
		{Words: "key list"},
		{Words: "init"},
		{Words: "cache"},
		{Words: "features"},
		{Words: "options"},
		{Words: "generate"},
		{Words: "self-update"},
		{Words: "version"},
		{Words: "help"},
	},
}

// interactive is the rule of a list of rustic, in which a person can remove snapshots.
var interactive = []Rule{{Flag: "interactive", Mode: exclusive, Raise: true}}

// rustic has no lock of its own: repolock uses the modes of restic's commands.
var rustic = &Program{
	Name: "rustic", Page: "restic.md", locate: (*Line).rusticPlace, named: []string{"RUSTIC_REPOSITORY"},
	flags: `help,h version,V use-profile,P= profile-substitute-env dry-run,n dry-run-warmup check-index log-level=
log-level-logfile= log-level-dependencies= log-file= no-progress progress-interval= group-by,g= prometheus=
prometheus-user= prometheus-pass= repository,r= repo-hot= option,o= no-cache cache-dir= warm-up warm-up-command=
warm-up-batch= warm-up-wait= warm-up-wait-command= key= key-file= key-command= password= password-file,p=
repo= filter-last= json-progress log-level-dryrun= opentelemetry= show-time-offset
password-command= filter-host= filter-label= filter-paths= filter-paths-exact= filter-after= filter-before=
filter-size= filter-size-added= filter-tags= filter-tags-exact= filter-jq= filter-fn=
all as-path= batch= binary blob blobs brief command= compression= custom-ignorefile= delete description=
description-from= delete-after= delete-never early-delete-index exclude-if-present= exclude-larger-than=
fast-repack files force,f forget-time= git-ignore glob= glob-file= host= ids iglob= iglob-file= ignore-ctime
ignore-devid ignore-inode init instant-delete json keep-daily,d= keep-delete= keep-half-yearly= keep-hourly,H=
keep-id= keep-last,l= keep-minutely,M= keep-monthly,m= keep-none keep-pack= keep-quarter-yearly= keep-tags=
keep-weekly,w= keep-within= keep-within-daily= keep-within-hourly= keep-within-minutely= keep-within-monthly=
keep-within-half-yearly= keep-within-quarter-yearly= keep-within-weekly= keep-within-yearly= keep-yearly,y= label=
long max-repack= max-unused= no-ownership no-repack no-require-git no-resize no-scan numeric-id numeric-ids
one-file-system,x only-identical parent= pack prune read-data read-data-subset= recursive remove-tags= add-tags=
set-tags= repack-all repack-cacheable-only= repack-uncompressed search-parent set-atime= set-devid= set-description=
set-hostname= skip-if-absent skip-if-unchanged skip-identical-parent stdin-command= stdin-filename= tag= time=
trust-cache verify-existing with-atime with-created with-devid
add= address= all-trees archive= delete-unchanged exclude-if-xattr= exclusive,e file= file-access= forget hostname=
hot-only interactive,i ls metadata metrics-job= metrics-labels= name= new-password= new-password-command=
new-password-file= no-content only-files only-index path= path-template= qr read-all remove= remove-delete
remove-description set= set-append-only= set-blockdev= set-chunk-max-size= set-chunk-min-size= set-chunk-size=
set-chunker= set-compression= set-ctime= set-datapack-growfactor= set-datapack-size= set-datapack-size-limit=
set-delete-after= set-delete-never set-description-from= set-extra-verify= set-label=
set-max-packsize-tolerate-percent= set-min-packsize-tolerate-percent= set-time= set-treepack-growfactor=
set-treepack-size= set-treepack-size-limit= set-version= set-xattrs= show-misses sparse= suffix= summary,s symlinks
tags-rewritten= target= time-template= username=`,
	Commands: []Command{
		{Words: "backup", Mode: shared, Rules: dryRun},
		{Words: "restore", Mode: shared},
		{Words: "dump", Mode: shared},
		{Words: "mount", Mode: shared},
		{Words: "webdav", Mode: shared},
		{Words: "key add", Mode: shared},
		{Words: "copy", Mode: shared, Refused: twoRepositories},
		{Words: "prune", Mode: exclusive, Rules: dryRun},
		{Words: "forget", Mode: exclusive, Rules: dryRun},
		{Words: "check", Mode: exclusive},
		{Words: "tag", Mode: exclusive, Rules: dryRun},
		{Words: "merge", Mode: exclusive, Rules: dryRun},
		{Words: "rewrite", Mode: exclusive, Rules: dryRun},
		{Words: "repair", Mode: exclusive, Rules: dryRun},
		{Words: "config", Mode: exclusive},
		{Words: "key remove", Mode: exclusive},
		{Words: "key password", Mode: exclusive},
		{Words: "tui", Mode: exclusive},
		{Words: "snapshots", Rules: interactive},
		{Words: "ls", Rules: interactive, flags: ",l"},
		{Words: "find"},
		{Words: "diff", Rules: interactive},
		{Words: "list"},
		{Words: "cat"},
		{Words: "key list"},
		{Words: "repoinfo"},
		{Words: "init"},
		{Words: "show-config"},
		{Words: "completions"},
		{Words: "docs"},
		{Words: "self-update"},
		{Words: "version"},
		{Words: "help"},
	},
}

// borg is Borg 1 and Borg 2. A backup is exclusive, because Borg 1 lets only one Borg write.
var borg = &Program{
	Name: "borg", Others: []string{"borg2"}, Page: "borg.md", locate: (*Line).borgPlace, named: []string{"BORG_REPO"},
	flags: `version,V help,h critical error warning info,v verbose,v debug debug-topic= progress,p iec log-json
lock-wait= bypass-lock show-version show-rc umask= remote-path= remote-ratelimit= upload-ratelimit= remote-buffer=
upload-buffer= consider-part-files debug-profile= rsh= socket= repo,r= other-repo= from-borg1
append-only archives-only atime cache-only checkpoint-interval,c= checkpoint-volume= chunker-params= cleanup-commits
comment= compression,C= consider-checkpoints content-from-command content-only disable-tam dry-run,n encryption,e=
exclude= exclude-caches exclude-from= exclude-if-present= exclude-nodump files-cache= files-changed= filter= find-lost-archives
first= force foreground,f format= ghost glob-archives,a= ignore-zeros inplace iso-dates json json-lines keep-13weekly=
keep-3monthly= keep-daily,d= keep-exclude-tags keep-hourly,H= keep-last= keep-minutely= keep-monthly,m=
keep-secondly= keep-security-info keep-weekly,w= keep-within= keep-yearly,y= keep= last= list,l make-parent-dirs
match-archives= max-duration= newer= newest= no-cache-sync no-files-cache no-hostname no-username noacls noatime nobirthtime nobsdflags noctime noflags noxattrs
numeric-ids numeric-owner offset= older= oldest= one-file-system,x options,o= paper paths-delimiter=
paths-from-command paths-from-shell-command paths-from-stdin pattern= patterns-from= prefix,P= qr-html read-special recompress=
repair repository-only repo-only reserve= restrict-to-path= restrict-to-repository= same-chunker-params save-space
segment= short sort sort-by= sparse stats,s stdin-group= stdin-mode= stdin-name= stdin-user= stdout storage-quota=
strip-components= tam tar-format= tar-filter= target= threshold= timestamp= undelete-archives user= group= hostname= username= verify-data xattrs acls`,
	Commands: []Command{
		{Words: "create", Mode: exclusive, Rules: dryRun, flags: ",e="},
		{Words: "import-tar", Mode: exclusive},
		{Words: "prune", Mode: exclusive, Rules: dryRun},
		{Words: "compact", Mode: exclusive, Rules: dryRun},
		{Words: "delete", Mode: exclusive, Rules: dryRun},
		{Words: "recreate", Mode: exclusive, Rules: dryRun, flags: ",e="},
		{Words: "check", Mode: exclusive},
		{Words: "rename", Mode: exclusive},
		{Words: "config", Mode: exclusive},
		{Words: "upgrade", Mode: exclusive, Rules: dryRun},
		{Words: "key change-passphrase", Mode: exclusive},
		{Words: "key change-location", Mode: exclusive},
		{Words: "key change-algorithm", Mode: exclusive},
		{Words: "key migrate-to-repokey", Mode: exclusive},
		{Words: "key import", Mode: exclusive},
		{Words: "key add", Mode: exclusive},
		{Words: "key remove", Mode: exclusive},
		{Words: "with-lock", Mode: exclusive, runs: true},
		{Words: "break-lock", Mode: exclusive},
		{Words: "benchmark", Mode: exclusive},
		{Words: "debug", Mode: exclusive},
		{Words: "repo-delete", Mode: exclusive, Rules: dryRun},
		{Words: "repo-compress", Mode: exclusive},
		{Words: "repo-space", Mode: exclusive},
		{Words: "tag", Mode: exclusive},
		{Words: "undelete", Mode: exclusive, Rules: dryRun},
		{Words: "transfer", Mode: exclusive, Refused: twoRepositories},
		{Words: "extract", Mode: shared, flags: ",e="},
		{Words: "export-tar", Mode: shared, flags: ",e="},
		{Words: "mount", Mode: shared, flags: ",e=", Rules: []Rule{{Flag: "foreground", Missing: true, Refused: "it continues in the background, without the lock: add --foreground"}}},
		{Words: "analyze", Mode: shared},
		{Words: "webdav", Mode: shared},
		{Words: "list", flags: ",e="},
		{Words: "info"},
		{Words: "diff", flags: ",e="},
		{Words: "find"},
		{Words: "key export"},
		{Words: "key list"},
		{Words: "init"},
		{Words: "repo-create"},
		{Words: "repo-info"},
		{Words: "repo-list"},
		{Words: "umount"},
		{Words: "completion"},
		{Words: "version"},
		{Words: "help"},
		{Words: "serve", Refused: "it serves other machines' commands: put repolock before those"},
	},
}

// noMaintenance is the rule of a command of Kopia that can run maintenance at its end. Maintenance rewrites indexes and
// deletes blobs. If it is due, and this user owns it, Kopia 0.8 to 0.23 runs it after each command that is a
// repositoryWriterAction (cli/app.go), unless the line has --no-auto-maintenance.
var noMaintenance = []Rule{{Flag: "auto-maintenance", Off: true, Mode: shared}}

var kopia = &Program{
	Name: "kopia", Page: "kopia.md", locate: (*Line).kopiaPlace, named: []string{"KOPIA_CONFIG_PATH"}, syntax: syntax{negated: true, files: true},
	alias: map[string]string{"snap": "snapshot", "snapshots": "snapshot", "repo": "repository", "manifests": "manifest", "policies": "policy", "ls": "list", "verify": "verify"},
	flags: `help help-long help-full help-man version log-file= log-dir= max-log-files= max-log-age= max-total-log-size-mb= log-level= file-log-level=
content-log-dir= file-log-local-tz force-color disable-color disable-file-logging disable-content-log console-timestamps json-log-console json-log-file
config-file= password,p= persist-credentials timezone= trace-storage check-for-updates use-keyring initial-update-check-delay=
update-check-interval= update-available-notify-interval= auto-maintenance progress progress-update-interval= progress-estimation-type= progress-estimation-skip
track-releasable= advanced-commands= caching diagnostics-output-directory= dump-allocator-stats enable-pprof
metrics-listen-addr= metrics-push-addr= metrics-push-interval= metrics-push-job= metrics-push-grouping= metrics-push-username= metrics-push-password= metrics-push-format= metrics-directory= metrics-store-on-exit
otlp-trace profile-dir= profile-cpu profile-blocking-rate= profile-memory-rate= profile-mutex-fraction= profile-store-on-exit profiles-dir= upgrade-owner-id= upgrade-no-block
all,a description= tags= pin= parallel= parallel-uploads= start-time= end-time= checkpoint-interval= checkpoint-upload-limit-mb= upload-limit-mb= force-hash=
force-enable-actions force-disable-actions stdin-file= override-source= fail-fast log-dir-detail= log-entry-detail= send-snapshot-report
delete all-snapshots-for-source unsafe-ignore-source policies latest-only sources= overwrite-policies apply-ignore-rules
full safety= force task= owner= enable-quick enable-full quick-interval= full-interval= pause-quick= pause-full= max-retained-log-age= max-retained-log-count= max-retained-log-size-mb= extend-object-locks list-parallelism=
overwrite-directories overwrite-files overwrite-symlinks write-sparse-files consistent-attributes mode= skip-owners skip-permissions skip-times ignore-permission-errors ignore-errors ignore-error skip-existing shallow= shallow-minsize= snapshot-time= write-files-atomically delete-extra
verify-files-percent= max-errors= max-failures= file-queue-length= file-parallelism= directory-id= file-id= include-dirs
commit json json-indent json-verbose incomplete human-readable delta manifest-id hashes mtime owner storage-stats reverse max-results= max-results-per-path= show-identical long,l show-object-id,o recursive,r error-summary,e
browse fuse-allow-other fuse-allow-non-empty-mount webdav preview= trace-fs max-cached-entries= max-cached-dirs=
path= bucket= prefix= endpoint= region= host= port= username= keyfile= key-data= known-hosts= known-hosts-data= embed-credentials external ssh-command= ssh-args=
access-key= secret-access-key= session-token= disable-tls disable-tls-verification root-ca-pem-base64= root-ca-pem-path= point-in-time= key-id= key= remote-path= rclone-exe= rclone-args= url= flat
storage-account= storage-key= container= credentials-file= override-hostname= override-username= cache-directory= content-cache-size-mb= metadata-cache-size-mb= enable-actions permissive-cache-loading readonly block-hash= encryption= splitter= create-only format-version= retention-mode= retention-period= token= token-stdin
must-exist times update dry-run yes add= remove= new-password= status-only file-contents-cache files-filter= drain-interval= io-drain-timeout= allow-unsafe-upgrade max-permitted-clock-drift= status-poll-interval=
inherit action-command-mode= action-command-timeout= active add-dot-ignore= add-ignore= add-never-compress=
add-only-compress= add-required-feature= after-folder-action= after-snapshot-root-action= all-sources
allow-unknown-fields app-token= atomic-writes azure-federated-token-file= before-folder-action=
before-snapshot-root-action= blob-prefixes= blobs= clear-dot-ignore clear-ignore clear-never-compress
clear-only-compress client-cert= client-id= client-secret= commit-mode= compression= compression-max-size=
compression-min-size= concurrency-test-duration= concurrent-reads= concurrent-writes= content-cache-size-limit-mb=
content-id= content-min-sweep-age= dangerous-commands= data-only decrypt delete-indexes delete-other-policies
deleted deleted-only diff-command= dir-mode= disable-internal-log disable-repository-format-cache
disable-repository-log download-bytes-per-second= download-percent= drop-contents= drop-deleted-older-than= ecc=
ecc-overhead-percent= editor embed-rclone-config= enable-volume-shadow-copy= epoch-advance-on-count=
epoch-advance-on-size-mb= epoch-checkpoint-frequency= epoch-cleanup-safety-margin= epoch-delete-parallelism=
epoch-min-duration= epoch-refresh-frequency= error-notifications= exclude-prefix= file= file-mode= filename= files
filter= flush-files flush-per-source folder-id= format= format-block-key-derivation-algorithm= from-file=
from-stdin get-blob-workers= get-metadata-workers= global hint= hint-streaming-reads hostname= html http-header=
human ignore-cache-dirs= ignore-dir-errors= ignore-file-errors= ignore-identical-snapshots=
ignore-missing-required-features ignore-unknown-types= include-deleted index-min-sweep-age= index-version=
invalid-directory-handling= invalid-file-handling= keep-annual= keep-daily= keep-hourly= keep-latest=
keep-monthly= keep-weekly= latest= list-caching list-requests-per-second= local-cache-key-derivation-algorithm=
lock-only log-dir-ignored= log-dir-snapshotted= log-entry-cache-hit= log-entry-cache-miss= log-entry-ignored=
log-entry-snapshotted= mail-cc= mail-from= mail-to= manual max-age= max-count= max-download-speed=
max-examples-per-bucket= max-file-size= max-list-cache-duration= max-pack-size-mb= max-parallel-file-reads=
max-parallel-snapshots= max-size= max-small-blobs= max-total-size-mb= max-upload-speed=
metadata-cache-size-limit-mb= metadata-compression= metadata-min-sweep-age= method= min-severity= min-size=
non-prefixed num-storage-connections= object-id= object-splitter= older-than= one-file-system= original overwrite
owner-gid= owner-uid= pack-prefix= parallel-upload-above-size-mib= parallelism= partial= persist-action-script
prefixed profile-name= progress-interval= put-blob-workers= quiet raw rclone-debug rclone-env=
rclone-nowait-for-transfers rclone-startup-timeout= read-only read-requests-per-second= read-write reconnect-token
reconnect-token-with-password recover-format= recover-format-block-prefixes= remove-dot-ignore= remove-ignore=
remove-never-compress= remove-only-compress= remove-required-feature= repository-format-cache-duration= retention
run-missed= sas-token= send-test-notification server-cert-fingerprint= sftp-password= short show-files
smtp-identity= smtp-password= smtp-port= smtp-server= smtp-username= snapshot-interval= snapshot-time-crontab=
sort= source= source-config= stats-only storage-domain= summary superseded tenant-id= to-file= token-file= unzip
upgrade upload-bytes-per-second= upload-speed= user-key= warn-on-missing-required-feature webdav-password=
webdav-username= write-requests-per-second= younger-than=`,
	Commands: []Command{
		{Words: "snapshot create", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot migrate", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot delete", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot expire", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot pin", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot copy-history", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot move-history", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy set", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy edit", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy delete", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy remove", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy rm", Mode: exclusive, Rules: noMaintenance},
		{Words: "policy import", Mode: exclusive, Rules: noMaintenance},
		{Words: "cache set", Mode: exclusive, Rules: noMaintenance},
		{Words: "notification profile delete", Mode: exclusive, Rules: noMaintenance},
		{Words: "notification template set", Mode: exclusive, Rules: noMaintenance},
		{Words: "notification template remove", Mode: exclusive, Rules: noMaintenance},
		{Words: "snapshot restore", Mode: shared},
		{Words: "snapshot verify", Mode: shared},
		{Words: "restore", Mode: shared},
		{Words: "mount", Mode: shared},
		{Words: "show", Mode: shared},
		{Words: "maintenance run", Mode: exclusive},
		{Words: "snapshot fix", Mode: exclusive},
		{Words: "repository upgrade", Mode: exclusive},
		{Words: "repository change-password", Mode: exclusive},
		{Words: "repository set-parameters", Mode: exclusive},
		{Words: "repository repair", Mode: exclusive},
		{Words: "blob delete", Mode: exclusive},
		{Words: "blob gc", Mode: exclusive},
		{Words: "content delete", Mode: exclusive},
		{Words: "content rewrite", Mode: exclusive},
		{Words: "index optimize", Mode: exclusive},
		{Words: "index recover", Mode: exclusive},
		{Words: "manifest delete", Mode: exclusive},
		{Words: "manifest remove", Mode: exclusive},
		{Words: "manifest rm", Mode: exclusive},
		{Words: "session list"},
		{Words: "snapshot list", flags: "show-identical,l manifest-id,m delta,d incomplete,i max-results,n="},
		{Words: "snapshot estimate"},
		{Words: "list"},
		{Words: "diff"},
		{Words: "policy list"},
		{Words: "policy show"},
		{Words: "policy get"},
		{Words: "policy export"},
		{Words: "maintenance info"},
		{Words: "maintenance set"},
		{Words: "repository status"},
		{Words: "repository connect"},
		{Words: "repository create"},
		{Words: "repository disconnect"},
		{Words: "repository set-client"},
		{Words: "repository throttle"},
		{Words: "repository validate-provider"},
		{Words: "cache clear"},
		{Words: "cache info"},
		{Words: "cache prefetch"},
		{Words: "cache sync"},
		{Words: "blob list"},
		{Words: "blob show"},
		{Words: "blob stats"},
		{Words: "content list"},
		{Words: "content show"},
		{Words: "content stats"},
		{Words: "content verify"},
		{Words: "index list"},
		{Words: "index inspect"},
		{Words: "manifest list"},
		{Words: "manifest show"},
		{Words: "notification profile configure"},
		{Words: "notification profile list"},
		{Words: "notification profile show"},
		{Words: "notification profile test"},
		{Words: "notification template list"},
		{Words: "notification template show"},
		{Words: "benchmark"},
		{Words: "logs"},
		{Words: "help"},
		{Words: "repository sync-to", Mode: exclusive, Refused: twoRepositories},
		{Words: "server", Refused: "it runs maintenance without a lock: use it only for restores, and name the lock"},
	},
}

// dryRunAlone is the rule of a command that changes nothing with --dry-run and without arguments. Go's package flag reads
// no flag after an argument, and with a snapshot's ID Cloudstic's forget ignores -dry-run.
var dryRunAlone = []Rule{{Flag: "dry-run", Alone: true}}

var cloudstic = &Program{
	Name: "cloudstic", Page: "cloudstic.md", Lock: "cloudstic", locate: (*Line).cloudsticPlace, named: []string{"CLOUDSTIC_STORE"}, syntax: syntax{oneDash: true},
	flags: `store= profile= profiles-file= s3-endpoint= s3-region= s3-profile= s3-access-key= s3-secret-key=
source-sftp-password= source-sftp-key= source-sftp-insecure source-sftp-known-hosts= store-sftp-password=
store-sftp-key= store-sftp-insecure store-sftp-known-hosts= encryption-key= password= recovery-key= kms-key-arn=
kms-region= kms-endpoint= disable-packfile prompt no-prompt verbose quiet json debug help h version cpuprofile= memprofile=
source= all-profiles auth-ref= dry-run ignore-empty-snapshot skip-native-files exclude-file= volume-uuid=
google-credentials= google-credentials-ref= google-credentials-json= google-token-file= google-token-ref=
onedrive-client-id= onedrive-token-file= onedrive-token-ref= skip-mode skip-flags skip-xattrs xattr-namespaces=
tag= exclude= prune keep-last= keep-hourly= keep-daily= keep-weekly= keep-monthly= keep-yearly= account= group-by=
group output= format= path= read-data raw new-password=`,
	Commands: []Command{
		{Words: "backup", Mode: exclusive, Rules: dryRunAlone},
		{Words: "prune", Mode: exclusive, Rules: dryRunAlone},
		{Words: "forget", Mode: exclusive, Rules: dryRunAlone},
		{Words: "break-lock", Mode: exclusive},
		{Words: "restore", Mode: shared},
		{Words: "check", Mode: shared},
		{Words: "key passwd", Mode: exclusive},
		{Words: "key add-recovery", Mode: exclusive},
		{Words: "list"},
		{Words: "ls"},
		{Words: "diff"},
		{Words: "find"},
		{Words: "cat"},
		{Words: "key list"},
		{Words: "init"},
		{Words: "profile"},
		{Words: "auth"},
		{Words: "store"},
		{Words: "source"},
		{Words: "setup"},
		{Words: "completion"},
		{Words: "version"},
		{Words: "help"},
		{Words: "tui", Mode: exclusive, Refused: "it runs other commands: put repolock before those"},
	},
}
