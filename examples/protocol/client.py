#!/usr/bin/env python3
"""A second client of docs/evidence/protocol.md, in a directory on a local disk of Linux.

It keeps to the eleven points of "Part 1: MUST". Of the other points it has only 12 and 13: it withdraws,
and dates its lock for clients of the original protocol. So it has no ticket, no two witnesses, no look
while it holds the lock, and no resume. The numbers in the comments are those of the points. It needs
nothing but Python's standard library.

    python3 client.py DIRECTORY shared|exclusive [--ttl S] [--wait S] -- COMMAND...

It exits with the command's code, with 75 if it got no lock, with 74 if the store fails, and with 79 if the lock
was lost.
"""

import argparse
import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import namedtuple

SHARED, EXCLUSIVE = "shared", "exclusive"
MAX_BODY = 64 << 10


class Held(Exception):
    """Another lock conflicts, or might."""


class Unsure(Exception):
    """The attempt took longer than its lease, or its flag is gone. It has acquired nothing."""


class Copied(Unsure):
    """Another process continues with this attempt: the machine was cloned or restored while it ran (11)."""


class Lost(Exception):
    """The lock isn't held any more."""


STRAY_FILES = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}
STRAY_FOLDERS = {"@eadir", "@tmp", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "$recycle.bin",
                 "system volume information", "lost+found", "network trash folder", "temporary items"}


def is_stray(name, known):
    """Whether an element of a flag's name is another program's: "Files of other programs"."""
    return name.startswith(".") or name.lower() in known


def elapsed():
    """Seconds on a clock that counts suspend, and that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Directory:
    """The store: the section "A store in a directory"."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        shared = stat.S_IMODE(os.stat(self.path).st_mode) & 0o077
        self.file_mode, self.dir_mode = 0o600 | shared & 0o066, 0o700 | shared

    @contextlib.contextmanager
    def flock(self):
        """Excludes each other replacement and deletion, also those of other threads."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def put(self, key, body, condition=lambda current: True):
        """Puts a body if the condition of the present one holds. Reports whether it was put."""
        with self.temporary(key, body) as (temp, path), self.flock():
            if not condition(self.get(key)):
                return False
            os.rename(temp, path)
            return True

    def put_if_absent(self, key, body):
        """If-None-Match. Reports whether the body was put."""
        with self.temporary(key, body) as (temp, path):
            try:
                os.link(temp, path)
            except FileExistsError:
                return False
            return True

    @contextlib.contextmanager
    def temporary(self, key, body):
        """A complete file beside the key's place, under a name that no reader lists."""
        path = os.path.join(self.path, key)
        temp = os.path.join(os.path.dirname(path), ".repolock-%s.tmp" % secrets.token_hex(13))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        for _ in range(100):
            self.make_folders(os.path.dirname(key))
            with contextlib.suppress(FileNotFoundError):  # another process has removed the empty folder
                fd = os.open(temp, flags, self.file_mode)
                break
        else:
            raise FileNotFoundError(path)
        try:
            with open(fd, "wb") as f:
                os.fchmod(fd, self.file_mode)
                f.write(body)
            yield temp, path
        finally:
            with contextlib.suppress(FileNotFoundError):  # the rename has moved it
                os.unlink(temp)

    def make_folders(self, folder):
        at = self.path
        for name in folder.split("/"):
            at = os.path.join(at, name)
            if os.path.islink(at):
                raise NotADirectoryError("%s is a link" % at)
            with contextlib.suppress(FileExistsError):
                os.mkdir(at, self.dir_mode)
                os.chmod(at, self.dir_mode)

    def delete(self, key, condition=lambda current: True):
        """Deletes an object if the condition of its present body holds."""
        with self.flock():
            if condition(self.get(key)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.path, key))

    def get(self, key):
        """The body, or None if there is no object. A name that is listed and can't be opened is an error."""
        found = self.read(key)
        return found and found.body

    def read(self, key):
        path = os.path.join(self.path, key)
        for _ in range(100):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                if os.path.basename(key) not in self.names(os.path.dirname(key)):
                    return None
                time.sleep(0.001)
                continue
            with open(fd, "rb") as f:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    raise OSError("%s is no file" % key)
                body = f.read(MAX_BODY + 1)
                return Found(body, (hashlib.sha256(body).hexdigest(), info.st_mtime_ns))
        raise OSError("%s is listed, and can't be opened" % key)

    def names(self, folder):
        """What is in a folder. One read can miss a name that is renamed meanwhile."""
        everything, last = set(), None
        for _ in range(16):
            try:
                now = set(os.listdir(os.path.join(self.path, folder)))
            except (FileNotFoundError, NotADirectoryError):
                now = set()
            everything |= now
            if now == last:
                break
            last = now
        return {n for n in everything if not (n.startswith(".repolock-") and n.endswith(".tmp"))}

    def is_folder(self, key):
        try:
            return stat.S_ISDIR(os.lstat(os.path.join(self.path, key)).st_mode)
        except FileNotFoundError:
            return False

    def list(self, prefix):
        """The keys of all lock objects below a prefix, with what was read of each: Found, or an error."""
        keys = []
        for name in self.names(prefix):
            key = prefix + name
            if not self.is_folder(key):
                keys += [key] * (name in ("lock.exclusive", "lock.intent", "lock.shared"))
            elif name == "lock.intent":  # the folders in it are ignored
                keys += [k for k in (key + "/" + n for n in self.names(key) if not is_stray(n, STRAY_FILES)) if not self.is_folder(k)]
            elif name == "lock.shared":
                keys += self.below(key)
            elif name == "lock.exclusive":
                keys += [k for k in self.in_its_place(key) if not k.startswith(key + "/lock.shared/")]
        found = {}
        for key in keys:
            try:
                found[key] = self.read(key)
                misplaced = key.startswith(prefix + "lock.exclusive/") or key in (prefix + "lock.intent", prefix + "lock.shared")
                if misplaced and (found[key] is None or found[key].body):
                    raise OSError("a file is in the place of a folder, or a folder in that of a file")
            except OSError as err:
                found[key] = err
        return {key: f for key, f in found.items() if f is not None}

    def below(self, folder):
        """The keys of the shared flags below a folder."""
        keys = []
        for name in self.names(folder):
            key = folder + "/" + name
            if not self.is_folder(key):
                keys += [key] * (not is_stray(name, STRAY_FILES))
            elif not is_stray(name, STRAY_FOLDERS):
                keys += self.below(key)
        return keys

    def in_its_place(self, folder):
        """The keys below a folder, and one with a slash for each empty folder."""
        keys = [folder + "/"] * (not self.names(folder))
        for name in self.names(folder):
            key = folder + "/" + name
            keys += self.in_its_place(key) if self.is_folder(key) else [key]
        return keys


# Found is a body, and its version, which changes with each refresh.
Found = namedtuple("Found", "body version")


def rfc3339(seconds):
    whole, nanos = divmod(int(seconds * 1e9), 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + ".%09dZ" % nanos


TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})([.][0-9]+)?(Z|[+-]([0-9]{2}):([0-9]{2}))")


def is_time(text):
    """Whether a text is RFC 3339 with any offset and any digits of the second, and a time of the calendar."""
    m = TIME.fullmatch(text)
    try:
        year, month, day, hour, minute, second = (int(n) for n in m.group(1, 2, 3, 4, 5, 6))
        datetime.datetime(year or 4, month, day, hour, minute, second)  # datetime has no year 0, which is a leap year
        return m.group(9) is None or int(m.group(9)) < 24 and int(m.group(10)) < 60
    except (AttributeError, ValueError):
        return False


def is_text(value):
    return isinstance(value, str)


def is_integer(least, most):
    return lambda value: type(value) is int and least <= value <= most


FIELDS = {
    "is_shared": lambda value: isinstance(value, bool),
    "ttl_seconds": lambda value: type(value) in (int, float) and 0 <= value < float("inf"),
    "refreshed_boot_ns": is_integer(-2**63, 2**63 - 1), "pid": is_integer(-2**63, 2**63 - 1),
    "seq": is_integer(0, 2**64 - 1), "pid_start": is_integer(0, 2**64 - 1),
    "metadata": lambda value: isinstance(value, dict) and all(v is None or is_text(v) for v in value.values()),
}
FIELDS.update((f, is_text) for f in (
    "operation", "holder", "acquired_at", "expires_at", "id", "acquired_id", "refreshed_at", "nonce", "state", "host_id",
    "boot_id", "pid_namespace", "time_namespace", "user", "version"))


def no_constant(name):
    raise ValueError("%s isn't JSON" % name)


def understood(body):
    """The fields of a lock's body, or None if it isn't understood. In doubt it isn't (4)."""
    try:
        read = json.loads(body.decode("utf-8", "replace"), parse_constant=no_constant)
        fields = {f.lower(): v for f, v in read.items() if v is not None}
    except (ValueError, AttributeError, RecursionError):
        return None
    times = [fields.get("expires_at", ""), fields.get("refreshed_at") or fields.get("expires_at", "")]
    fits = all(is_valid(fields[f]) for f, is_valid in FIELDS.items() if f in fields)
    return fields if fits and all(is_time(t) for t in times) else None


def ttl_of(body):
    """The ttl of another client's lock, or None if the body is unreadable: then the lock is held (4)."""
    if len(body) > MAX_BODY:
        return None
    if body.startswith(b"\x01"):  # encrypted
        return 60
    fields = understood(body)
    if fields is None:
        return None
    seconds = fields.get("ttl_seconds", 0)
    return min(max(seconds, 10), 86400) if seconds else 60


class Client:
    def __init__(self, directory, prefix="index/", ttl=60):
        self.store, self.prefix, self.ttl = Directory(directory), prefix, ttl

    def acquire(self, mode, operation, wait=0):
        """Returns a Lock, or raises Held, Unsure or an OSError. With a wait it tries again, once a second."""
        seen, end = {}, elapsed() + wait
        while True:
            try:
                return Attempt(self, mode, operation, seen).enter()
            except (Held, Unsure):
                if elapsed() >= end:
                    raise
                time.sleep(min(1, max(end - elapsed(), 0)))


class Attempt:
    """One flag, under a key and with an id that no other attempt uses (1).

    seen has the first sight of each version of another's lock. It belongs to the acquire, not to the
    attempt, because a lock is stale if it stays the same for a whole ttl of our own time (5).
    """

    def __init__(self, client, mode, operation, seen):
        self.client, self.store, self.mode, self.seen = client, client.store, mode, seen
        self.operation, self.id = operation, secrets.token_hex(16)
        self.acquired = time.time()
        stamp = rfc3339(self.acquired).replace("-", "").replace(":", "")
        folder = "lock.shared/" if mode == SHARED else "lock.intent/"
        self.flag = client.prefix + folder + stamp + "-" + self.id
        self.pointer = client.prefix + "lock.exclusive"
        self.sent = self.deadline = None
        self.bodies = set()  # that were sent, with their keys

    def body(self, state):
        ttl, now = self.client.ttl, time.time()
        return json.dumps({
            "operation": self.operation,
            "holder": "%s (pid %d)" % (socket.gethostname(), os.getpid()),
            "acquired_at": rfc3339(self.acquired),
            "expires_at": rfc3339(now + max(ttl, ttl * 55 / 60 + 60)),  # (13)
            "is_shared": self.mode == SHARED,
            "id": self.id,
            "nonce": secrets.token_hex(8),  # (1)
            "ttl_seconds": ttl,
            "refreshed_at": rfc3339(now),
            "state": state,
        }).encode()

    def new_body(self, key, state):
        """A body that is sent under a key, and makes that object own from now on (9)."""
        body = self.body(state)
        self.bodies.add((key, body))
        return body

    def lasts_from(self, sent):
        """The lease, from the send of a put (8)."""
        self.sent, self.deadline = sent, sent + self.client.ttl * 55 / 60

    def enter(self):
        try:
            self.lasts_from(elapsed())
            self.store.put(self.flag, self.new_body(self.flag, "acquiring"))  # (2)
            pointer = self.look()
            if self.mode == EXCLUSIVE:  # (7)
                self.claim(pointer, self.new_body(self.pointer, "acquiring"))
                if not self.is_own(self.pointer, self.look()):
                    raise Held("another client has taken or deleted %s" % self.pointer)
            if elapsed() >= self.deadline:  # (8)
                raise Unsure("it took longer than its lease")
            return Lock(self)
        except NotADirectoryError as err:
            raise Held("no lock can be put there: %s" % err)
        except Copied:
            raise  # the objects are the other process's (11)
        except BaseException:
            with contextlib.suppress(OSError):  # objects that can't be deleted expire
                self.leave()  # (12)
            raise

    def is_own(self, key, found):
        """Whether this process has sent an object's body. Its fields prove nothing (9)."""
        return found is not None and (key, found.body) in self.bodies

    def is_copied(self, key, found):
        """Whether an object has this attempt's id, and isn't own (11)."""
        own_id = found is not None and (understood(found.body) or {}).get("id") == self.id
        return own_id and not self.is_own(key, found)

    def look(self):
        """Deletes the stale flags, and returns the pointer as it was listed, if no live lock conflicts."""
        began = elapsed()
        listed = self.store.list(self.client.prefix)
        answered = elapsed()
        for key in set(self.seen) - set(listed):
            del self.seen[key]
        stale, held = [], None
        for key, found in sorted(listed.items()):
            if self.conflicts(key, found):
                if self.is_stale(key, found, began, answered):
                    stale.append(key)
                else:
                    held = key
        if self.flag not in listed or isinstance(listed[self.flag], OSError):  # (3)
            raise Unsure("the own flag isn't listed")
        for key in (self.flag, self.pointer):
            if isinstance(listed.get(key), Found) and self.is_copied(key, listed[key]):
                raise Copied("another process continues with %s: was this machine cloned or restored?" % key)
        if held:  # (4)
            raise Held("%s is held" % held)
        for key in stale:
            if key != self.pointer:  # only claim replaces that
                self.store.delete(key)  # (6)
        return listed.get(self.pointer)

    def conflicts(self, key, found):
        """Own is what this attempt wrote, not what this process wrote (4)."""
        if key == self.flag or self.mode == SHARED and key.startswith(self.client.prefix + "lock.shared/"):
            return False
        if isinstance(found, OSError):
            return True
        return found.body != b"" and not (key == self.pointer and self.is_own(key, found))

    def is_stale(self, key, found, began, answered):
        """Unchanged for a whole ttl, from the answer of the first look to the send of the last (5)."""
        if isinstance(found, OSError) or ttl_of(found.body) is None:
            return False
        version, since = self.seen.get(key, (None, 0))
        if version != found.version:
            self.seen[key] = (found.version, answered)
            return False
        return began - since >= ttl_of(found.body)

    def claim(self, pointer, body):
        """Puts the pointer if the look showed none, or replaces the one that it showed (7)."""
        if pointer is None:
            self.store.put_if_absent(self.pointer, body)
        else:
            self.store.put(self.pointer, body, lambda current: current == pointer.body)

    def leave(self):
        """Deletes the pointer, if that is still the own one and the lease lasts (11), and the flag (10)."""
        own = lambda current: elapsed() < self.deadline and current is not None and self.is_own(self.pointer, Found(current, None))
        if self.mode == EXCLUSIVE:
            self.store.delete(self.pointer, own)
        self.delete_flag()

    def delete_flag(self):
        """Deletes the flag, unless a copy of this process has refreshed it (11)."""
        self.store.delete(self.flag, lambda current: current is None or not self.is_copied(self.flag, Found(current, None)))


class Lock:
    """A held lock. A thread refreshes it. When it is lost, on_lost is called: the work must have stopped
    before the ttl is over, a twelfth of it later."""

    def __init__(self, attempt):
        self.attempt, self.on_lost = attempt, lambda: None
        self.mutex, self.ending, self.lost, self.copied = threading.Lock(), threading.Event(), None, False
        self.refreshes = threading.Thread(target=self.refresher, daemon=True)
        self.refreshes.start()
        threading.Thread(target=self.warden, daemon=True).start()

    def lose(self, why):
        with self.mutex:
            if self.lost or self.ending.is_set():
                return
            self.lost = Lost(why)
        self.on_lost()

    def warden(self):
        """Ends the lock at its deadline, whatever the store does, and soon after a suspend (8)."""
        while not self.lost and not self.ending.wait(0.05):
            if elapsed() >= self.attempt.deadline:
                self.lose("it wasn't refreshed before its deadline")

    def refresher(self):
        a = self.attempt
        while not self.ending.wait(max(a.sent + a.client.ttl / 2 - elapsed(), 0.2)) and not self.lost:
            try:
                self.refresh()
            except OSError:
                pass  # it is tried again until the deadline
            except Lost as err:
                self.lose(str(err))

    def refresh(self):
        """Replaces each object, if it is still the own one, before the deadline (8, 9)."""
        a, sent = self.attempt, elapsed()

        def put(key):
            def own(current):
                found = None if current is None else Found(current, None)
                if a.is_copied(key, found):
                    self.copied = True
                    raise Lost("another process continues with it: was this machine cloned or restored?")
                if not a.is_own(key, found):
                    raise Lost("it was broken")
                return elapsed() < a.deadline

            return a.store.put(key, a.new_body(key, "held"), own)

        for key in [a.flag] + [a.pointer] * (a.mode == EXCLUSIVE):
            if not put(key):
                return
        if elapsed() < a.deadline:
            a.lasts_from(sent)

    def release(self):
        """Ends the lock. The work must have ended before. Raises Lost if the lock was lost (10)."""
        with self.mutex:
            self.ending.set()
        self.refreshes.join()  # its puts under way
        if self.lost:
            if not self.copied:
                self.attempt.delete_flag()
            raise self.lost
        self.attempt.leave()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory")
    p.add_argument("mode", choices=[SHARED, EXCLUSIVE])
    p.add_argument("--ttl", type=float, default=60)
    p.add_argument("--wait", type=float, default=0)
    p.add_argument("command", nargs="+")
    args = p.parse_args()
    try:
        lock = Client(args.directory, ttl=args.ttl).acquire(args.mode, args.command[0][:256], args.wait)
    except (Held, Unsure) as err:
        print(err, file=sys.stderr)
        return 75
    except OSError as err:
        print("the store fails: %s" % err, file=sys.stderr)
        return 74
    child = subprocess.Popen(args.command, start_new_session=True)

    def end(sig):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sig)

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda sig, _: end(sig))
    lock.on_lost = lambda: end(signal.SIGKILL)
    if lock.lost:  # before that line
        end(signal.SIGKILL)
    code = child.wait()
    try:
        lock.release()
    except Lost as err:
        print("the lock was lost: %s" % err, file=sys.stderr)
        return 79
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
