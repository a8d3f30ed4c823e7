# restic under repolock, for backups in containers:
#
#   docker build -t repolock-restic -f packaging/container/restic.Dockerfile packaging/container
#
# repolock is process 1: signals reach restic through it, and it reaps what restic leaves.
ARG REPOLOCK=repolock
ARG RESTIC=restic/restic:0.18.1
FROM ${REPOLOCK} AS repolock
FROM ${RESTIC}
COPY --from=repolock /usr/local/bin/repolock /usr/local/bin/repolock
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/repolock"]
