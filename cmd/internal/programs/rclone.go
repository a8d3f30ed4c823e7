package programs

// rcloneFlags are the flags of all commands of rclone, including the flags of all backends.
const rcloneFlags = `acd-auth-url= acd-client-id= acd-client-secret= acd-encoding= acd-templink-threshold= acd-token-url= acd-token=
acd-upload-wait-per-gb= alias-remote= ask-password auto-confirm azureblob-access-tier= azureblob-account=
azureblob-archive-tier-delete azureblob-chunk-size= azureblob-disable-checksum azureblob-encoding=
azureblob-endpoint= azureblob-key= azureblob-list-chunk= azureblob-memory-pool-flush-time=
azureblob-memory-pool-use-mmap azureblob-msi-client-id= azureblob-msi-mi-res-id= azureblob-msi-object-id=
azureblob-no-head-object azureblob-public-access= azureblob-sas-url= azureblob-service-principal-file=
azureblob-upload-concurrency= azureblob-upload-cutoff= azureblob-use-emulator azureblob-use-msi b2-account=
b2-chunk-size= b2-copy-cutoff= b2-disable-checksum b2-download-auth-duration= b2-download-url= b2-encoding=
b2-endpoint= b2-hard-delete b2-key= b2-lifecycle= b2-memory-pool-flush-time= b2-memory-pool-use-mmap b2-test-mode=
b2-upload-concurrency= b2-upload-cutoff= b2-version-at= b2-versions backup-dir= bind= box-access-token= box-auth-url=
box-box-config-file= box-box-sub-type= box-client-id= box-client-secret= box-commit-retries= box-encoding=
box-list-chunk= box-owned-by= box-root-folder-id= box-token-url= box-token= box-upload-cutoff= buffer-size=
bwlimit-file= bwlimit= ca-cert= cache-chunk-clean-interval= cache-chunk-no-memory cache-chunk-path= cache-chunk-size=
cache-chunk-total-size= cache-db-path= cache-db-purge cache-db-wait-time= cache-dir= cache-info-age=
cache-plex-insecure= cache-plex-password= cache-plex-url= cache-plex-username= cache-read-retries= cache-remote=
cache-rps= cache-tmp-upload-path= cache-tmp-wait-time= cache-workers= cache-writes check-first checkers= checksum,c
chunker-chunk-size= chunker-fail-hard chunker-hash-type= chunker-remote= client-cert= client-key= combine-upstreams=
compare-dest= compress-level= compress-mode= compress-ram-cache-limit= compress-remote= config= contimeout=
copy-dest= copy-links,L cpuprofile= crypt-directory-name-encryption crypt-filename-encoding=
crypt-filename-encryption= crypt-no-data-encryption crypt-pass-bad-blocks crypt-password2= crypt-password=
crypt-remote= crypt-server-side-across-configs crypt-show-mapping crypt-strict-names crypt-suffix= cutoff-mode=
default-time= delete-after delete-before delete-during delete-excluded disable-http-keep-alives disable-http2
disable= drive-acknowledge-abuse drive-allow-import-name-change drive-auth-owner-only drive-auth-url=
drive-chunk-size= drive-client-id= drive-client-secret= drive-copy-shortcut-content drive-disable-http2
drive-encoding= drive-export-formats= drive-formats= drive-impersonate= drive-import-formats=
drive-keep-revision-forever drive-list-chunk= drive-pacer-burst= drive-pacer-min-sleep= drive-resource-key=
drive-root-folder-id= drive-scope= drive-server-side-across-configs drive-service-account-credentials=
drive-service-account-file= drive-shared-with-me drive-size-as-quota drive-skip-checksum-gphotos
drive-skip-dangling-shortcuts drive-skip-gdocs drive-skip-shortcuts drive-starred-only drive-stop-on-download-limit
drive-stop-on-upload-limit drive-team-drive= drive-token-url= drive-token= drive-trashed-only drive-upload-cutoff=
drive-use-created-date drive-use-shared-date drive-use-trash drive-v2-download-min-size= dropbox-auth-url=
dropbox-batch-commit-timeout= dropbox-batch-mode= dropbox-batch-size= dropbox-batch-timeout= dropbox-chunk-size=
dropbox-client-id= dropbox-client-secret= dropbox-encoding= dropbox-impersonate= dropbox-shared-files
dropbox-shared-folders dropbox-token-url= dropbox-token= dry-run,n dscp= dump-bodies dump-headers dump=
error-on-no-transfer exclude-from= exclude-if-present= exclude= expect-continue-timeout= fast-list fichier-api-key=
fichier-encoding= fichier-file-password= fichier-folder-password= fichier-shared-folder= filefabric-encoding=
filefabric-permanent-token= filefabric-root-folder-id= filefabric-token-expiry= filefabric-token= filefabric-url=
filefabric-version= files-from-raw= files-from= filter,f= filter-from= fix-case fs-cache-expire-duration=
fs-cache-expire-interval= ftp-ask-password ftp-close-timeout= ftp-concurrency= ftp-disable-epsv ftp-disable-mlsd
ftp-disable-tls13 ftp-disable-utf8 ftp-encoding= ftp-explicit-tls ftp-force-list-hidden ftp-host= ftp-idle-timeout=
ftp-no-check-certificate ftp-pass= ftp-port= ftp-shut-timeout= ftp-tls ftp-tls-cache-size= ftp-user= ftp-writing-mdtm
gcs-anonymous gcs-auth-url= gcs-bucket-acl= gcs-bucket-policy-only gcs-client-id= gcs-client-secret= gcs-decompress
gcs-encoding= gcs-endpoint= gcs-location= gcs-no-check-bucket gcs-object-acl= gcs-project-number=
gcs-service-account-file= gcs-storage-class= gcs-token-url= gcs-token= gphotos-auth-url= gphotos-client-id=
gphotos-client-secret= gphotos-encoding= gphotos-include-archived gphotos-read-only gphotos-read-size
gphotos-start-year= gphotos-token-url= gphotos-token= hash-filter= hasher-auto-size= hasher-hashes= hasher-max-age=
hasher-remote= hdfs-data-transfer-protection= hdfs-encoding= hdfs-namenode= hdfs-service-principal-name=
hdfs-username= header-download= header-upload= header= help,h hidrive-auth-url= hidrive-chunk-size=
hidrive-client-id= hidrive-client-secret= hidrive-disable-fetching-member-count hidrive-encoding= hidrive-endpoint=
hidrive-root-prefix= hidrive-scope-access= hidrive-scope-role= hidrive-token-url= hidrive-token=
hidrive-upload-concurrency= hidrive-upload-cutoff= http-headers= http-no-head http-no-slash http-url= human-readable
ignore-case ignore-case-sync ignore-checksum ignore-errors ignore-existing ignore-size ignore-times,I immutable
include-from= include= inplace interactive,i internetarchive-access-key-id= internetarchive-disable-checksum
internetarchive-encoding= internetarchive-endpoint= internetarchive-front-endpoint=
internetarchive-secret-access-key= internetarchive-wait-archive= jottacloud-encoding= jottacloud-hard-delete
jottacloud-md5-memory-limit= jottacloud-no-versions jottacloud-trashed-only jottacloud-upload-resume-limit=
koofr-encoding= koofr-endpoint= koofr-mountid= koofr-password= koofr-provider= koofr-setmtime koofr-user=
kv-lock-time= links,l list-cutoff= local-case-insensitive local-case-sensitive local-encoding= local-hashes=
local-links local-no-check-updated local-no-clone local-no-preallocate local-no-set-modtime local-no-sparse
local-nounc local-unicode-normalization local-zero-size-links log-file= log-format= log-level= log-systemd
low-level-retries= mailru-check-hash mailru-encoding= mailru-pass= mailru-speedup-enable
mailru-speedup-file-patterns= mailru-speedup-max-disk= mailru-speedup-max-memory= mailru-user= max-age= max-backlog=
max-buffer-memory= max-delete-size= max-delete= max-depth= max-duration= max-size= max-stats-groups= max-transfer=
memprofile= metadata,M metadata-exclude-from= metadata-exclude= metadata-filter-from= metadata-filter=
metadata-include-from= metadata-include= metadata-mapper= metadata-set= metrics-addr= min-age= min-size=
modify-window= multi-thread-cutoff= multi-thread-streams= name-transform= netstorage-account= netstorage-host=
netstorage-protocol= netstorage-secret= no-check-certificate no-check-dest no-console no-gzip-encoding no-traverse
no-unicode-normalization no-update-modtime one-file-system,x onedrive-access-scopes= onedrive-auth-url=
onedrive-chunk-size= onedrive-client-id= onedrive-client-secret= onedrive-drive-id= onedrive-drive-type=
onedrive-encoding= onedrive-expose-onenote-files onedrive-link-password= onedrive-link-scope= onedrive-link-type=
onedrive-list-chunk= onedrive-no-versions onedrive-region= onedrive-root-folder-id=
onedrive-server-side-across-configs onedrive-token-url= onedrive-token= opendrive-chunk-size= opendrive-encoding=
opendrive-password= opendrive-username= order-by= partial-suffix= password-command= pcloud-auth-url=
pcloud-client-id= pcloud-client-secret= pcloud-encoding= pcloud-hostname= pcloud-password= pcloud-root-folder-id=
pcloud-token-url= pcloud-token= pcloud-username= premiumizeme-encoding= progress,P progress-terminal-title
putio-encoding= quiet,q rc rc-addr= rc-allow-origin= rc-baseurl= rc-cert= rc-client-ca= rc-enable-metrics rc-files=
rc-htpasswd= rc-job-expire-duration= rc-job-expire-interval= rc-key= rc-max-header-bytes= rc-min-tls-version=
rc-no-auth rc-pass= rc-realm= rc-serve rc-server-read-timeout= rc-server-write-timeout= rc-template= rc-user=
rc-web-fetch-url= rc-web-gui rc-web-gui-force-update rc-web-gui-no-open-browser rc-web-gui-update refresh-times
retries-sleep= retries= s3-access-key-id= s3-acl= s3-bucket-acl= s3-chunk-size= s3-copy-cutoff= s3-decompress
s3-directory-bucket s3-directory-markers s3-disable-checksum s3-disable-http2 s3-download-url= s3-encoding=
s3-endpoint= s3-env-auth s3-force-path-style s3-leave-parts-on-error s3-list-chunk= s3-list-url-encode=
s3-list-version= s3-location-constraint= s3-max-upload-parts= s3-memory-pool-flush-time= s3-memory-pool-use-mmap
s3-might-gzip= s3-no-check-bucket s3-no-head s3-no-head-object s3-no-system-metadata s3-profile= s3-provider=
s3-region= s3-requester-pays s3-role-arn= s3-sdk-log-mode= s3-secret-access-key= s3-server-side-encryption=
s3-session-token= s3-shared-credentials-file= s3-sse-customer-algorithm= s3-sse-customer-key-base64=
s3-sse-customer-key-md5= s3-sse-customer-key= s3-sse-kms-key-id= s3-storage-class= s3-sts-endpoint=
s3-upload-concurrency= s3-upload-cutoff= s3-use-accelerate-endpoint s3-use-accept-encoding-gzip=
s3-use-already-exists= s3-use-arn-region s3-use-dual-stack s3-use-multipart-etag= s3-use-multipart-uploads=
s3-use-presigned-request s3-use-unsigned-payload= s3-v2-auth s3-version-at= s3-version-deleted s3-versions
seafile-2fa seafile-create-library seafile-encoding= seafile-library-key= seafile-library= seafile-pass= seafile-url=
seafile-user= server-side-across-configs sftp-ask-password sftp-chunk-size= sftp-ciphers= sftp-concurrency=
sftp-connections= sftp-copy-is-hardlink sftp-disable-concurrent-reads sftp-disable-concurrent-writes
sftp-disable-hashcheck sftp-host-key-algorithms= sftp-host= sftp-idle-timeout= sftp-key-exchange= sftp-key-file-pass=
sftp-key-file= sftp-key-pem= sftp-key-use-agent sftp-known-hosts-file= sftp-macs= sftp-md5sum-command= sftp-pass=
sftp-path-override= sftp-port= sftp-pubkey-file= sftp-server-command= sftp-set-env= sftp-set-modtime
sftp-sha1sum-command= sftp-shell-type= sftp-skip-links sftp-socks-proxy= sftp-ssh= sftp-subsystem= sftp-use-fstat
sftp-use-insecure-cipher sftp-user= sharefile-chunk-size= sharefile-encoding= sharefile-endpoint=
sharefile-root-folder-id= sharefile-upload-cutoff= sia-api-password= sia-api-url= sia-encoding= sia-user-agent=
size-only skip-links smb-case-insensitive smb-domain= smb-encoding= smb-hide-special-share smb-host=
smb-idle-timeout= smb-pass= smb-port= smb-user= stats-file-name-length= stats-log-level= stats-one-line
stats-one-line-date stats-one-line-date-format= stats-unit= stats= streaming-upload-cutoff= suffix-keep-extension
suffix= sugarsync-access-key-id= sugarsync-app-id= sugarsync-authorization-expiry= sugarsync-authorization=
sugarsync-deleted-id= sugarsync-encoding= sugarsync-hard-delete sugarsync-private-access-key=
sugarsync-refresh-token= sugarsync-root-id= sugarsync-user= swift-application-credential-id=
swift-application-credential-name= swift-application-credential-secret= swift-auth-token= swift-auth-version=
swift-auth= swift-chunk-size= swift-domain= swift-encoding= swift-endpoint-type= swift-env-auth swift-key=
swift-leave-parts-on-error swift-no-chunk swift-no-large-objects swift-region= swift-storage-policy=
swift-storage-url= swift-tenant-domain= swift-tenant-id= swift-tenant= swift-user-id= swift-user= syslog
syslog-facility= temp-dir= timeout= tpslimit-burst= tpslimit= track-renames track-renames-strategy= transfers=
union-action-policy= union-cache-time= union-create-policy= union-min-free-space= union-search-policy=
union-upstreams= update,u uptobox-access-token= uptobox-encoding= use-cookies use-json-log use-mmap
use-server-modtime user-agent= verbose,v webdav-bearer-token-command= webdav-bearer-token= webdav-encoding=
webdav-headers= webdav-owncloud-exclude-shares webdav-pacer-min-sleep= webdav-pass= webdav-url= webdav-user=
webdav-vendor= windows-event-log= yandex-auth-url= yandex-client-id= yandex-client-secret= yandex-encoding=
yandex-hard-delete yandex-token-url= yandex-token= zoho-auth-url= zoho-client-id= zoho-client-secret= zoho-encoding=
zoho-region= zoho-token-url= zoho-token=`

// rcloneOwn are the flags of single commands of rclone.
const rcloneOwn = `absolute available bind-addr= checkfile= copy-dest-type= csv dir-slash dirs-only files-only format= hash= hash-type=
max-depth-list= recursive separator= no-modtime no-mimetype original encrypted metadata-list stat count= head= tail=
offset= discard one-way combined= differ= match= missing-on-dst= missing-on-src= error= download
create-empty-src-dirs delete-empty-src-dirs rmdirs leave-root output= base64 output-file= resync resync-mode= force
check-access check-filename= check-sync= filters-file= localtime localtime-offset no-cleanup remove-empty-dirs
workdir= resilient recover compare= conflict-resolve= conflict-loser= conflict-suffix= max-lock= backup-dir1=
backup-dir2= slow-hash-sync-only no-slow-hash ignore-listing-checksum timestamp= no-create size= dedupe-mode= by-hash
json level= all dirsfirst fullpath full-path noindent noreport quote modtime protections sort= sort-ctime
sort-modtime sort-reverse sort-size sort-version unsorted color hdir daemon daemon-timeout= daemon-wait=
allow-non-empty allow-other allow-root async-read= attr-timeout= debug-fuse default-permissions devname= fuse-flag=
max-read-ahead= mount-case-insensitive= network-mode noappledouble= noapplexattr volname= write-back-cache direct-io
read-only dir-cache-time= dir-perms= file-perms= gid= uid= no-checksum no-seek poll-interval= umask=
vfs-block-norm-dupes vfs-cache-max-age= vfs-cache-max-size= vfs-cache-min-free-space= vfs-cache-mode=
vfs-cache-poll-interval= vfs-case-insensitive vfs-disk-space-total-size= vfs-fast-fingerprint vfs-links
vfs-metadata-extension= vfs-read-ahead= vfs-read-chunk-size= vfs-read-chunk-size-limit= vfs-read-chunk-streams=
vfs-read-wait= vfs-refresh vfs-used-is-size vfs-write-back= vfs-write-wait= no-default-permissions addr= baseurl=
cert= client-ca= htpasswd= key= max-header-bytes= min-tls-version= pass= realm= salt= server-read-timeout=
server-write-timeout= template= user= auth-key= auth-proxy= append-only private-repos stdio authorized-keys=
host-key= no-auth etag-hash= disable-dir-list cache-objects allow-origin= passive-port= public-ip= disable-gzip
force-path-style cache-dir-serve expire= unlink auto-filename auto-filename-header no-clobber print-filename urls=
hard dump-wait`

// adds are the rules of a command that writes files. With --ignore-existing it changes none, and with --immutable it
// changes none if it copies a directory: rclone replaces a single file all the same (fs/operations moveOrCopyFile).
// --no-check-dest and --copy-dest undo both.
var adds = []Rule{
	{Flag: "dry-run"},
	{Flag: "immutable", Unless: overwrites, Directory: true, Mode: shared},
	{Flag: "ignore-existing", Unless: overwrites, Mode: shared},
}

const overwrites = "no-check-dest copy-dest"

// readOnly are the rules of a command that serves files, and writes none with --read-only.
var readOnly = []Rule{{Flag: "read-only", Mode: shared}, {Flag: "daemon", Refused: "it continues in the background, without the lock: leave out --daemon"}}

var rclone = &Program{
	Name: "rclone", Page: "rclone.md", locate: (*Line).rclonePlace, flags: rcloneFlags + " " + rcloneOwn,
	variables: "RCLONE_",
	rules:     []Rule{{Flag: "rc", Mode: exclusive, Raise: true}}, // another program can make it delete
	Commands: []Command{
		{Words: "copy", Mode: exclusive, Least: shared, Rules: adds},
		{Words: "copyto", Mode: exclusive, Least: shared, Rules: adds},
		{Words: "copyurl", Mode: exclusive, Least: shared, Rules: []Rule{{Flag: "dry-run"}, {Flag: "no-clobber", Mode: shared}}, flags: ",a ,p"},
		{Words: "rcat", Mode: exclusive, Least: shared, Rules: dryRun},
		{Words: "moveto", Mode: exclusive, Rules: dryRun},
		{Words: "move", Mode: exclusive, Rules: dryRun},
		{Words: "sync", Mode: exclusive, Rules: dryRun},
		{Words: "bisync", Mode: exclusive, Rules: dryRun},
		{Words: "delete", Mode: exclusive, Rules: dryRun},
		{Words: "deletefile", Mode: exclusive, Rules: dryRun},
		{Words: "purge", Mode: exclusive, Rules: dryRun},
		{Words: "rmdir", Mode: exclusive, Rules: dryRun},
		{Words: "rmdirs", Mode: exclusive, Rules: dryRun},
		{Words: "dedupe", Mode: exclusive, Rules: dryRun},
		{Words: "cleanup", Mode: exclusive, Rules: dryRun},
		{Words: "settier", Mode: exclusive},
		{Words: "touch", Mode: exclusive, Rules: dryRun, flags: ",R ,t= ,C"},
		{Words: "backend", Mode: exclusive, flags: ",o="},
		{Words: "mount", Mode: exclusive, Rules: readOnly, flags: ",o="},
		{Words: "nfsmount", Mode: exclusive, Rules: readOnly, flags: ",o="},
		{Words: "cmount", Mode: exclusive, Rules: readOnly, flags: ",o="},
		{Words: "serve", Mode: exclusive, Rules: readOnly},
		{Words: "serve docker", Refused: "another program mounts through it"},
		{Words: "test", Mode: exclusive},
		{Words: "ncdu", Mode: exclusive},
		{Words: "cat", Mode: shared},
		{Words: "check", Mode: shared, flags: ",C="},
		{Words: "cryptcheck", Mode: shared},
		{Words: "checksum", Mode: shared},
		{Words: "hashsum", Mode: shared, flags: ",C="},
		{Words: "md5sum", Mode: shared, flags: ",C="},
		{Words: "sha1sum", Mode: shared, flags: ",C="},
		{Words: "ls"},
		{Words: "lsl"},
		{Words: "lsd", flags: ",R"},
		{Words: "lsf", flags: ",R ,F= ,s= ,d"},
		{Words: "lsjson", flags: ",R ,M"},
		{Words: "size"},
		{Words: "tree", flags: ",a ,d ,D ,p ,Q ,r ,s ,t ,U ,C ,o= ,L="},
		{Words: "about"},
		{Words: "mkdir"},
		{Words: "link"},
		{Words: "authorize"},
		{Words: "config"},
		{Words: "convmv", Mode: exclusive, Rules: dryRun},
		{Words: "archive", Mode: exclusive, Rules: dryRun},
		{Words: "completion"},
		{Words: "cryptdecode"},
		{Words: "genautocomplete"},
		{Words: "gendocs"},
		{Words: "gitannex", Refused: "another program runs it"},
		{Words: "help"},
		{Words: "listremotes"},
		{Words: "obscure"},
		{Words: "rc", Refused: "the work is in another rclone: put repolock before that one"},
		{Words: "rcd", Mode: exclusive},
		{Words: "selfupdate"},
		{Words: "version"},
	},
}
