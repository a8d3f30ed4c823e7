"""An SFTP server of paramiko: PORT RSA-HOST-KEY AUTHORIZED-KEYS FOLDER [rename].

paramiko has the protocol, and leaves the files to its user: this is what its own stub and most servers of it do. With
rename it also has posix_rename, which paramiko's server then answers, although it doesn't name the extension."""

import os
import socket
import sys
import threading

import paramiko
from paramiko import SFTP_OK, SFTPAttributes, SFTPHandle, SFTPServer, SFTPServerInterface

PORT, HOST, AUTHORIZED, FOLDER = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
with open(AUTHORIZED) as keys:
    KEY = keys.read().split()[1]


class Server(paramiko.ServerInterface):
    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL if key.get_base64() == KEY else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username):
        return "publickey"

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED


class Handle(SFTPHandle):
    def stat(self):
        return SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))

    def chattr(self, attr):
        return SFTP_OK


def answers(call):
    """Turns an OSError of a method into a status."""
    def method(self, *args):
        try:
            return call(self, *args)
        except OSError as e:
            return SFTPServer.convert_errno(e.errno)
    return method


class Files(SFTPServerInterface):
    def path(self, path):
        return os.path.join(FOLDER, self.canonicalize(path).lstrip("/"))

    @answers
    def list_folder(self, path):
        path, found = self.path(path), []
        for name in os.listdir(path):
            try:
                attr = SFTPAttributes.from_stat(os.lstat(os.path.join(path, name)))
            except FileNotFoundError:
                continue
            attr.filename = name
            found.append(attr)
        return found

    @answers
    def stat(self, path):
        return SFTPAttributes.from_stat(os.stat(self.path(path)))

    @answers
    def lstat(self, path):
        return SFTPAttributes.from_stat(os.lstat(self.path(path)))

    @answers
    def open(self, path, flags, attr):
        handle = Handle(flags)
        mode = "rb" if flags & (os.O_WRONLY | os.O_RDWR) == 0 else "r+b"
        file = os.fdopen(os.open(self.path(path), flags, 0o600), "wb" if mode != "rb" and not flags & os.O_RDWR else mode)
        handle.readfile = handle.writefile = file
        return handle

    @answers
    def remove(self, path):
        os.remove(self.path(path))
        return SFTP_OK

    @answers
    def rename(self, old, new):
        os.rename(self.path(old), self.path(new))
        return SFTP_OK

    @answers
    def mkdir(self, path, attr):
        os.mkdir(self.path(path))
        return SFTP_OK

    @answers
    def rmdir(self, path):
        os.rmdir(self.path(path))
        return SFTP_OK

    @answers
    def chattr(self, path, attr):
        return SFTP_OK


class Renaming(Files):
    @answers
    def posix_rename(self, old, new):
        os.replace(self.path(old), self.path(new))
        return SFTP_OK


def serve(connection):
    transport = paramiko.Transport(connection)
    transport.add_server_key(paramiko.RSAKey(filename=HOST))
    transport.set_subsystem_handler("sftp", SFTPServer, Renaming if "rename" in sys.argv[5:] else Files)
    transport.start_server(server=Server())


listener = socket.create_server(("127.0.0.1", PORT), backlog=100)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
